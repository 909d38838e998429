"""What pytorch.py compares: subjects under policies, optimizers and losses."""

import json
import subprocess

# Forms that the list of subjects does not have at a small size.
MORE = ["conv2d/b2_c4_o4_s6_k3x1", "convtranspose2d/b2_c4_o6_s4x5_k4_t2_g2", "attention/b2_h2_t6_d4_m0",
        "attention/b2_h2_t6_d4_f0", "attention/b5_h2_t7_d4_m2", "attention/b5_h2_t7_d4_m2_f0", "lstm/b3_t4_i5_h6_r1",
        "batchnorm2d/b4_c3_s4_m1_a0", "dropout/b2_c4_s5_p30_m1", "resnet/b4_s8_n1_w4", "resnet50/b4_s16_n1_w2_o10",
        "xception/b4_s16_n1_w4_o10"]

# A larger subject is covered by a smaller one of its family.
LARGEST_FLOPS, LARGEST_INPUT = 2e6, 20000  # forward; numbers of the input


def subjects(halfmark):
    """The small ones of halfmark's own list, so that a new one is compared because it is listed; and MORE."""
    listed = json.loads(subprocess.run([halfmark, "list", "subjects", "--json"], capture_output=True, check=True).stdout)

    def elements(subject):
        count = 1
        for extent in subject["input"]:
            count *= extent
        return count

    small = [one["id"] for one in listed if one["forward_flops"] <= LARGEST_FLOPS and elements(one) <= LARGEST_INPUT]
    return small + [subject for subject in MORE if subject not in small]


def trainings():
    """Each optimizer, on a model without kinks."""
    return [["optimizer=sgd", "rate=0.1"], ["momentum=0", "weight_decay=0.01"], ["nesterov=true"],
            ["dampening=0.5"], ["optimizer=adam", "rate=0.01", "weight_decay=0.1"],
            ["optimizer=adam", "rate=0.01", "beta1=0.5", "beta2=0.9", "epsilon=0.001"],
            ["optimizer=adamw", "rate=0.01", "weight_decay=0.1"], ["clip_norm=0.01"], ["clip_norm=1000"]]


def loss_models():
    """Model files of each loss, on text and on images."""
    logits = [{"layer": "flatten", "name": "flatten"}, {"layer": "linear", "name": "fc", "out": 10}]
    sure = logits + [{"layer": "sigmoid", "name": "sigmoid"}]
    losses = [({"loss": "cross_entropy", "smoothing": 0.1}, logits),
              ({"loss": "cross_entropy", "class_weights": [1, 2, 3, 4, 5, 0.5, 1, 1, 0, 1], "ignored": 3}, logits),
              ({"loss": "mse"}, logits), ({"loss": "smooth_l1", "beta": 0.5}, logits), ({"loss": "smooth_l1", "beta": 0}, logits),
              ({"loss": "binary_cross_entropy_with_logits", "pos_weight": 3}, logits),
              ({"loss": "focal"}, logits), ({"loss": "focal", "alpha": -1, "gamma": 1.5}, logits),
              ({"loss": "binary_cross_entropy"}, sure)]
    return [{"name": f"loss{i}", "input": [2, 4, 4], "batch": 8, "data": "images", "classes": 10, "loss": loss, "layers": layers}
            for i, (loss, layers) in enumerate(losses)]
