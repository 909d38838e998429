// One function for each kind of layer but the activations: checks the arguments against the shape of the input, and makes the
// layer. Each throws Error that says what does not fit.
#pragma once

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/network/layer_request.h"

namespace halfmark::models {

LayerPtr make_linear(LayerRequest& r);
LayerPtr make_tied_linear(LayerRequest& r);
LayerPtr make_conv2d(LayerRequest& r);
LayerPtr make_batchnorm1d(LayerRequest& r);
LayerPtr make_batchnorm2d(LayerRequest& r);
LayerPtr make_batchnorm3d(LayerRequest& r);
LayerPtr make_conv_transpose2d(LayerRequest& r);
LayerPtr make_upsample(LayerRequest& r);
LayerPtr make_adaptive_avg_pool2d(LayerRequest& r);
LayerPtr make_layer_norm(LayerRequest& r);
LayerPtr make_rms_norm(LayerRequest& r);
LayerPtr make_group_norm(LayerRequest& r);
LayerPtr make_max_pool2d(LayerRequest& r);
LayerPtr make_avg_pool2d(LayerRequest& r);
LayerPtr make_global_avg_pool2d(LayerRequest& r);
LayerPtr make_channel_shuffle(LayerRequest& r);
LayerPtr make_flatten(LayerRequest& r);
LayerPtr make_add(LayerRequest& r);
LayerPtr make_softmax(LayerRequest& r);
LayerPtr make_dropout(LayerRequest& r);
LayerPtr make_embedding(LayerRequest& r);
LayerPtr make_position_embedding(LayerRequest& r);
LayerPtr make_self_attention(LayerRequest& r);
LayerPtr make_lstm(LayerRequest& r);
LayerPtr make_lstm_cell(LayerRequest& r);
LayerPtr make_take_step(LayerRequest& r);
LayerPtr make_to_sequence(LayerRequest& r);
LayerPtr make_concat(LayerRequest& r);
LayerPtr make_again(LayerRequest& r);
LayerPtr make_side(LayerRequest& r);
LayerPtr make_join(LayerRequest& r);
LayerPtr make_upsample_nearest(LayerRequest& r);
LayerPtr make_to_anchors(LayerRequest& r);
LayerPtr make_checkpoint(LayerRequest& r);

}  // namespace halfmark::models
