// Single layers of sequences at any size. To add one, add a row.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/family_parts.h"

namespace halfmark::models {

using namespace family_parts;

namespace {

Subject softmax_alone(const Sizes& s) {
  s.check_elements("the input", {s['b'], s['d']});
  return alone({s['b'], s['d']}, {"softmax", "softmax"});
}
Subject attention_alone(const Sizes& s) {
  const int64_t features = 3 * s['h'] * s['d'];
  s.check_elements("the input", {s['b'], s['t'], features});
  LayerSpec layer{"self_attention", "attention", {{"heads", s['h']}, {"causal", s['m'] == 1}, {"fused", s['f'] == 1}}};
  // Every length from the whole one to a quarter of it.
  if (s['m'] == 2) {
    const auto t = static_cast<double>(s['t']);
    layer.arguments["lengths"] = std::vector{t, std::ceil(t / 2), std::ceil(3 * t / 4), std::ceil(t / 4)};
  }
  return alone({s['b'], s['t'], features}, std::move(layer));
}
Subject lstm_alone(const Sizes& s) {
  s.check_elements("the gates", {s['b'], s['t'], 4 * s['h']});
  s.check_elements("a weight", {4 * s['h'], std::max(s['i'], s['h'])});
  return alone({s['b'], s['t'], s['i']}, {"lstm", "lstm", {{"hidden", s['h']}, {"bidirectional", s['r'] == 1}}});
}
Subject lstm_cell_alone(const Sizes& s) {
  const int64_t width = s['i'] + 2 * s['h'];
  s.check_elements("the input", {s['b'], width});
  s.check_elements("a weight", {4 * s['h'], std::max(s['i'], s['h'])});
  return alone({s['b'], width}, {"lstm_cell", "cell", {{"hidden", s['h']}}});
}
Subject embedding_alone(const Sizes& s) {
  s.check_elements("the table", {s['v'], s['d']});
  s.check_elements("the output", {s['b'], s['t'], s['d']});
  return subject_of_network({s['b'], s['t']}, DataKind::indices, s['v'],
                            {{{"embedding", "embedding", {{"entries", s['v']}, {"features", s['d']}}}}});
}
Shape sequence_of(const Sizes& s) {
  s.check_elements("the input", {s['b'], s['t'], s['d']});
  return {s['b'], s['t'], s['d']};
}
Subject position_embedding_alone(const Sizes& s) {
  return alone(sequence_of(s), {"position_embedding", "positions", {{"length", s['t']}}});
}
Subject take_step_alone(const Sizes& s) { return alone(sequence_of(s), {"take_step", "last"}); }

}  // namespace

std::vector<Family> sequence_families() {
  const SizeLetter in = {.letter = 'i', .about = "inputs"};
  return {
      {.name = "softmax",
       .about = "a softmax over the features of each token",
       .letters = {kTokens, kFeatures},
       .example = "b512_d1024",
       .make = softmax_alone},
      {.name = "attention",
       .about = "scaled dot-product attention of q, k and v",
       .letters = {kBatch,
                   {.letter = 'h', .about = "heads"},
                   {.letter = 't', .about = "time, the length of a sequence"},
                   {.letter = 'd', .about = "features of a head"},
                   {.letter = 'm',
                    .about = "mask; 1: causal, 0: none, 2: sequences of t, t/2, 3t/4 and t/4 steps in turn",
                    .usual = "1",
                    .usual_value = one,
                    .least = 0,
                    .most = 2},
                   {.letter = 'f',
                    .about = "1: one operation, 0: products and a softmax",
                    .usual = "1",
                    .usual_value = one,
                    .least = 0,
                    .most = 1}},
       .example = "b8_h8_t128_d32",
       .make = attention_alone},
      {.name = "lstm",
       .about = "a long short-term memory",
       .letters = {kBatch,
                   {.letter = 't', .about = "time, the length of a sequence"},
                   in,
                   {.letter = 'h', .about = "hidden"},
                   {.letter = 'r',
                    .about = "1: a second one in reverse",
                    .usual = "0",
                    .usual_value = none,
                    .least = 0,
                    .most = 1}},
       .example = "b32_t32_i128_h128",
       .make = lstm_alone},
      {.name = "lstm_cell",
       .about = "one step of a long short-term memory, from a given state",
       .letters = {kBatch, in, {.letter = 'h', .about = "hidden"}},
       .example = "b64_i128_h128",
       .make = lstm_cell_alone},
      {.name = "embedding",
       .about = "rows of a table, by random indices",
       .letters = {kBatch, kTime, {.letter = 'v', .about = "rows of the table"}, kFeatures},
       .example = "b32_t64_v1000_d128",
       .make = embedding_alone},
      {.name = "position_embedding",
       .about = "a row of a table added to each step",
       .letters = {kBatch, kTime, kFeatures},
       .example = "b32_t64_d128",
       .make = position_embedding_alone},
      {.name = "take_step",
       .about = "the last step of a sequence",
       .letters = {kBatch, kTime, kFeatures},
       .example = "b32_t64_d128",
       .make = take_step_alone},
  };
}

}  // namespace halfmark::models
