// Networks that people know, at their published sizes and at smaller ones. Counts of parameters and multiply-adds are
// compared with the published ones in published_test.cpp.
#pragma once

#include <cstdint>

#include "models/namespaces.h"
#include "models/network/network.h"

namespace halfmark::models::published {

// LeNet-5 as it is usually built today (LeCun et al. 1998 had tanh, trained pooling and sparse connections): two
// convolutions of 5 x 5, three linear layers, ReLU. The first convolution pads images of 28 x 28 to 32 x 32.
Network lenet5(int64_t image, int64_t classes);

// The ResNet of CIFAR-10 (He et al. 2015, arXiv:1512.03385, section 4.2) with `blocks` residual blocks in each of three
// stages of `width`, 2 width and 4 width channels; 3 and 16: ResNet-20. Shortcuts that change the shape are 1 x 1
// convolutions with batch norm (option B). Initial weights: normal, variance 2 / fan_in.
Network resnet(int64_t blocks, int64_t width, int64_t classes);

// ResNet-50 (the same, section 4.1) in the form v1.5, where the 3 x 3 convolution of a bottleneck has the stride.
// `bottlenecks` in each stage; 0: 3, 4, 6, 3. Images below 64 pixels get a 3 x 3 stem without stride and pool. Initial
// weights of convolutions: normal, variance 2 / fan_out.
Network resnet50(int64_t image, int64_t bottlenecks, int64_t width, int64_t classes);

// Xception (Chollet 2016, arXiv:1610.02357) with `middle` blocks in the middle flow; 8 and width 32: as published. Widths
// are in proportion to `width`, a multiple of 4. Images below 64 pixels: the first convolution has stride 1 and padding 1.
Network xception(int64_t image, int64_t middle, int64_t width, int64_t classes);

// ERFNet (Romera et al. 2018, IEEE T-ITS 19(1); github.com/Eromera/erfnet_pytorch) with width, 4 width and 8 width channels.
// depth 2: as published (width 16); 1: one block where there are five or two, and dilations 2 and 4 once.
Network erfnet(int64_t depth, int64_t width, int64_t classes);

// GPT-2 (Radford et al. 2019; github.com/karpathy/nanoGPT) with `layers` of `heads` and `width` features, for sequences of
// `length`: with biases, without dropout, exact GELU, the head with the weight of the embedding. All weights are N(0, 0.02^2),
// those before a residual sum N(0, 0.02^2 / (2 layers)); biases are 0.
Network gpt(int64_t length, int64_t layers, int64_t heads, int64_t width, int64_t vocabulary);

// BERT (Devlin et al. 2018, arXiv:1810.04805) with a classifier on the first token: norms after the sums, epsilon 1e-12,
// exact GELU, dropout 0.1 after the embedding and before each sum, a tanh pooler. Without the embedding of segments and
// without dropout of attention's probabilities.
Network bert(int64_t length, int64_t layers, int64_t heads, int64_t width, int64_t vocabulary, int64_t classes);

// Embedding, `layers` LSTMs, and a linear layer on the last step. Our own.
Network lstm_classifier(int64_t layers, int64_t embedded, int64_t hidden, int64_t vocabulary, int64_t classes);

// Two convolutions over time, the first with stride 2, a bidirectional LSTM and a linear layer, for CTC. Our own.
Network speech(int64_t hidden, int64_t classes);

}  // namespace halfmark::models::published
