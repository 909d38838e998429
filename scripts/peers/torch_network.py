"""A network of halfmark, as its JSON describes it, in PyTorch: a function for each kind of layer and of loss."""

import math

import torch
import torch.nn.functional as F

from dumped import kept_by_dropout


class NotJudged(Exception):
    """What PyTorch has no counterpart for, in one line."""


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


class Rounded(torch.autograd.Function):
    """Multiplies each number by 1 + u r with |r| <= 1, in forward and in backward: what one rounding may do."""

    @staticmethod
    def forward(ctx, x, unit):
        ctx.unit = unit
        return x * (1 + unit * (2 * torch.rand_like(x) - 1))

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + ctx.unit * (2 * torch.rand_like(gradient) - 1)), None


class Network:
    """`tensors`: parameters and states by name. `unit`: 0, or the size of a rounding after each layer."""

    def __init__(self, model, tensors, seeds=None, momentum=0.1, unit=0.0):
        self.model, self.tensors, self.seeds, self.momentum, self.unit = model, tensors, seeds or {}, momentum, unit
        self.dtypes, self.sides = {}, {}
        self.training = True

    def __call__(self, x):
        return self.sequence(self.model["layers"], x)

    def sequence(self, layers, x):
        for layer in layers:
            kind = layer["layer"]
            if kind not in KINDS:
                raise NotJudged(f"layers of kind {kind}: torch_network.py has no row for it")
            x = KINDS[kind](self, layer, x)
            self.dtypes[layer["name"]] = x.dtype
            x = self.rounded(x)
        return x

    def rounded(self, x):
        return Rounded.apply(x, self.unit) if self.unit and x.is_floating_point() else x

    def named(self, name):
        """The layer of this name, as the model describes it."""
        def search(layers):
            for layer in layers:
                if layer["name"] == name:
                    return layer
                for branch in layer.get("branches", []):
                    if (found := search(branch)) is not None:
                        return found
            return None
        return search(self.model["layers"])

    def of(self, layer, suffix):
        return self.tensors.get(f"{layer['name']}.{suffix}")


def weight(net, layer):
    """With weight norm, torch.nn.utils.parametrizations.weight_norm's: torch._weight_norm(v, g, 0)."""
    if not layer.get("weight_norm", False):
        return net.of(layer, "weight")
    v, g = net.of(layer, "weight_v"), net.of(layer, "weight_g")
    product = torch._weight_norm(v, g.reshape((-1,) + (1,) * (v.dim() - 1)), layer.get("norm_dim", 0))
    net.dtypes[f"{layer['name']}.weight"] = product.dtype
    return product


def linear(net, layer, x):
    return F.linear(x, weight(net, layer), net.of(layer, "bias"))


def conv2d(net, layer, x):
    return F.conv2d(x, weight(net, layer), net.of(layer, "bias"), pair(layer.get("stride", 1)),
                    pair(layer.get("padding", 0)), pair(layer.get("dilation", 1)), layer.get("groups", 1))


def conv_transpose2d(net, layer, x):
    return F.conv_transpose2d(x, net.of(layer, "weight"), net.of(layer, "bias"), pair(layer.get("stride", 1)),
                              pair(layer.get("padding", 0)), pair(layer.get("output_padding", 0)),
                              layer.get("groups", 1), pair(layer.get("dilation", 1)))


def batchnorm(net, layer, x):
    frozen = layer.get("frozen", False)
    return F.batch_norm(x, net.of(layer, "running_mean"), net.of(layer, "running_variance"), net.of(layer, "scale"),
                        net.of(layer, "shift"), net.training and not frozen, layer.get("momentum", net.momentum),
                        layer.get("epsilon", 1e-5))


def max_pool2d(net, layer, x):
    kernel = pair(layer["kernel"])
    return F.max_pool2d(x, kernel, pair(layer.get("stride", layer["kernel"])), pair(layer.get("padding", 0)))


def avg_pool2d(net, layer, x):
    kernel = pair(layer["kernel"])
    return F.avg_pool2d(x, kernel, pair(layer.get("stride", layer["kernel"])), pair(layer.get("padding", 0)))


def dropout(net, layer, x):
    if not net.training:
        return x
    p = layer.get("p", 0.5)
    channels = layer.get("channels", False)
    shape = tuple(x.shape[:2]) if channels else tuple(x.shape)
    kept = torch.from_numpy(kept_by_dropout(shape, p, net.seeds[layer["name"]]))
    if channels:
        kept = kept.reshape(shape + (1,) * (x.dim() - 2))
    return torch.where(kept, x / (1 - p), torch.zeros((), dtype=x.dtype))


def embedding(net, layer, x):
    padding = layer.get("padding", -1)
    return F.embedding(x, net.of(layer, "weight"), padding_idx=padding if padding >= 0 else None)


def attention_mask(net, layer, q):
    """Of layers with sequences of several lengths; None: all steps attend, or those of the causal mask."""
    lengths, causal = layer.get("lengths"), layer.get("causal", False)
    if not lengths:
        return None
    n, _, t, _ = q.shape
    attends = torch.arange(t) < torch.tensor([lengths[i % len(lengths)] for i in range(n)])[:, None]
    attends = attends[:, None, None, :].expand(n, 1, t, t)
    seen = torch.ones(t, t, dtype=torch.bool).tril() if causal else torch.ones(t, t, dtype=torch.bool)
    if "mask_value" in layer:
        mask = torch.zeros(n, 1, t, t, dtype=q.dtype).masked_fill(~attends, layer["mask_value"])
        return mask.masked_fill(~seen, -math.inf).to(q.device)
    return (attends & seen).to(q.device)


def self_attention(net, layer, x, mask_of=attention_mask):
    n, t, width = x.shape
    heads = layer["heads"]
    q, k, v = x.reshape(n, t, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    if not layer.get("guarded", True):
        raise ValueError("self_attention: PyTorch has no attention whose masked rows are not guarded")
    mask = mask_of(net, layer, q)
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=layer.get("causal", False) and mask is None)
    return y.transpose(1, 2).reshape(n, t, width // 3)


def lstm(net, layer, x):
    both = layer.get("bidirectional", False)
    module = torch.nn.LSTM(x.shape[2], layer["hidden"], batch_first=True, bidirectional=both)
    given = {}
    for direction in ["", "reverse."] if both else [""]:
        suffix = "_l0" + ("_reverse" if direction else "")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            given[name + suffix] = net.of(layer, direction + name)
    return torch.func.functional_call(module, given, (x,))[0]


def lstm_cell(net, layer, x):
    hidden = layer["hidden"]
    inputs, h, c = x.split([x.shape[1] - 2 * hidden, hidden, hidden], dim=1)
    if layer.get("order") == "ch":
        h, c = c, h
    module = torch.nn.LSTMCell(inputs.shape[1], hidden)
    given = {name: net.of(layer, name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    return torch.cat(torch.func.functional_call(module, given, (inputs, (h, c))), dim=1)


def add(net, layer, x):
    first, second = (net.sequence(branch, x) for branch in layer["branches"])
    return first + second


def concat(net, layer, x):
    return torch.cat([net.sequence(branch, x) for branch in layer["branches"]],
                     dim=-1 if layer.get("axis", "channels") == "last" else 1)


def again(net, layer, x):
    one = net.named(layer["of"])
    return KINDS[one["layer"]](net, one, x)


def side(net, layer, x):
    net.sides[layer["name"]] = net.sequence(layer["branches"][0], x)
    return x


def join(net, layer, x):
    z = net.sides.pop(layer["of"])
    return x + z if layer.get("how", "add") == "add" else torch.cat([x, z], dim=1)


def to_anchors(net, layer, x):
    """torchvision's permute_and_flatten (models/detection/rpn.py)."""
    n, channels, h, w = x.shape
    features = channels // layer["anchors"]
    return x.view(n, -1, features, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, features)


def batch_first(net, layer, x):
    return x.permute(0, 3, 1, 2).reshape(x.shape[0], x.shape[3], -1)


KINDS = {
    "linear": linear,
    "tied_linear": lambda net, layer, x: F.linear(x, net.tensors[f"{layer['weight_of']}.weight"]),
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "batchnorm1d": batchnorm,
    "batchnorm2d": batchnorm,
    "batchnorm3d": batchnorm,
    "layer_norm": lambda net, layer, x: F.layer_norm(x, x.shape[-1:], net.of(layer, "scale"), net.of(layer, "shift"),
                                                     layer.get("epsilon", 1e-5)),
    "rms_norm": lambda net, layer, x: F.rms_norm(x, x.shape[-1:], net.of(layer, "scale"),
                                                 layer.get("epsilon", 2.0**-23)),
    "group_norm": lambda net, layer, x: F.group_norm(x, layer["groups"], net.of(layer, "scale"), net.of(layer, "shift"),
                                                     layer.get("epsilon", 1e-5)),
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "global_avg_pool2d": lambda net, layer, x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool2d": lambda net, layer, x: F.adaptive_avg_pool2d(x, pair(layer["size"])),
    "upsample_bilinear2d": lambda net, layer, x: F.interpolate(x, scale_factor=layer["scale"], mode="bilinear",
                                                               align_corners=layer.get("align_corners", False)),
    "upsample_nearest2d": lambda net, layer, x: F.interpolate(x, scale_factor=layer["scale"],
                                                              mode=layer.get("mode", "nearest")),
    "to_anchors": to_anchors,
    "again": again,
    "side": side,
    "join": join,
    "channel_shuffle": lambda net, layer, x: F.channel_shuffle(x, layer["groups"]),
    "flatten": lambda net, layer, x: x.flatten(1),
    "softmax": lambda net, layer, x: F.softmax(x, -1),
    "dropout": dropout,
    "embedding": embedding,
    "position_embedding": lambda net, layer, x: x + net.of(layer, "weight")[: x.shape[1]],
    "self_attention": self_attention,
    "lstm": lstm,
    "lstm_cell": lstm_cell,
    "to_sequence": batch_first,
    "take_step": lambda net, layer, x: x[:, layer.get("step", -1)],
    "add": add,
    "concat": concat,
    "checkpoint": lambda net, layer, x: net.sequence(layer["branches"][0], x),
    "relu": lambda net, layer, x: F.relu(x),
    "leaky_relu": lambda net, layer, x: F.leaky_relu(x),
    "sigmoid": lambda net, layer, x: torch.sigmoid(x),
    "tanh": lambda net, layer, x: torch.tanh(x),
    "silu": lambda net, layer, x: F.silu(x),
    "gelu": lambda net, layer, x: F.gelu(x),
    "gelu_tanh": lambda net, layer, x: F.gelu(x, approximate="tanh"),
    "exp": lambda net, layer, x: torch.exp(x),
    "square": lambda net, layer, x: torch.square(x),
}


def made(values, like):
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def focal(net, output, target, loss):
    """torchvision's sigmoid_focal_loss with the mean over all elements."""
    alpha, gamma = loss.get("alpha", 0.25), loss.get("gamma", 2)
    p = torch.sigmoid(output)
    value = F.binary_cross_entropy_with_logits(output, target, reduction="none")
    value = value * (1 - (p * target + (1 - p) * (1 - target))) ** gamma
    if alpha >= 0:
        value = (alpha * target + (1 - alpha) * (1 - target)) * value
    return value.mean()


def cross_entropy(net, output, target, loss):
    if output.dim() == 3:
        output = output.transpose(1, 2)
    weights = loss.get("class_weights")
    return F.cross_entropy(output, target.long(), weight=made(weights, output) if weights else None,
                           ignore_index=loss.get("ignored", -100), label_smoothing=loss.get("smoothing", 0.0))


def ctc(net, output, target, loss):
    logs = net.rounded(F.log_softmax(output, -1)).transpose(0, 1)  # a tensor that both programs store
    return F.ctc_loss(logs, target[:, 2:].long(), target[:, 0].long(), target[:, 1].long(), blank=loss.get("blank", 0),
                      zero_infinity=loss.get("zero_infinity", False))


def detection(net, output, target, loss):
    """torchvision's losses of RetinaNetHead, as sums with the weights that the targets bring."""
    values, weights = target.chunk(2, dim=-1)
    classes = output.shape[-1] - 4
    alpha, gamma = loss.get("alpha", 0.25), loss.get("gamma", 2)
    x, y = output[..., :classes], values[..., :classes]
    p = torch.sigmoid(x)
    focal_loss = F.binary_cross_entropy_with_logits(x, y, reduction="none") * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    if alpha >= 0:
        focal_loss = (alpha * y + (1 - alpha) * (1 - y)) * focal_loss
    boxes = F.smooth_l1_loss(output[..., classes:], values[..., classes:], reduction="none", beta=loss.get("beta", 1.0))
    return (focal_loss * weights[..., :classes]).sum() + (boxes * weights[..., classes:]).sum()


LOSSES = {
    "cross_entropy": cross_entropy,
    "ctc": ctc,
    "mse": lambda net, output, target, loss: F.mse_loss(output, target),
    "smooth_l1": lambda net, output, target, loss: F.smooth_l1_loss(output, target, beta=loss.get("beta", 1.0)),
    "binary_cross_entropy": lambda net, output, target, loss: F.binary_cross_entropy(output, target),
    "binary_cross_entropy_with_logits": lambda net, output, target, loss: F.binary_cross_entropy_with_logits(
        output, target, pos_weight=made(loss.get("pos_weight", 1.0), output)),
    "focal": focal,
    "detection": detection,
}


def optimizer_of(training, parameters, **form):
    """The torch optimizer of a dump's "training". `form`: fused or foreach; none: PyTorch's choice."""
    kind, rate, decay = training.get("optimizer", "sgd"), training.get("rate", 0.05), training.get("weight_decay", 0.0)
    if training.get("storage", "nearest") != "nearest":
        raise NotJudged(f"storage {training['storage']}: torch has no such optimizer")
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=training.get("momentum", 0.9),
                               dampening=training.get("dampening", 0.0), weight_decay=decay,
                               nesterov=training.get("nesterov", False), **form)
    if kind in ("adam", "adamw"):
        made = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
        return made(parameters, lr=rate, betas=(training.get("beta1", 0.9), training.get("beta2", 0.999)),
                    eps=training.get("epsilon", 1e-8), weight_decay=decay, **form)
    raise NotJudged(f"optimizer {kind}: torch has no such optimizer")


def largest_sum(model):
    """The number of terms of the longest sum of products, at least of a gradient over the batch."""
    longest = 1
    def visit(layers):
        nonlocal longest
        for layer in layers:
            area = math.prod(pair(layer.get("kernel", 1)))
            longest = max(longest, area * layer.get("out", 1), layer.get("hidden", 1))
            for branch in layer.get("branches", []):
                visit(branch)
    visit(model["layers"])
    return max(longest, model["batch"] * math.prod(model["input"]))
