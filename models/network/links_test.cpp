// Layers that refer to earlier ones: what is wrong with a network that uses them is one line.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "models/network/network.h"

namespace halfmark::models {
namespace {

LayerSpec small_conv(const std::string& name, int64_t out = 4) {
  return {"conv2d", name, {{"out", out}, {"kernel", int64_t{1}}}};
}
LayerSpec join(const std::string& name, const std::string& of, const std::string& how = "add") {
  return {"join", name, {{"of", of}, {"how", how}}};
}

std::string message_of(const std::vector<LayerSpec>& layers) {
  try {
    output_shape(Network{layers}, {2, 4, 3, 3});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
void expect_message(const std::vector<LayerSpec>& layers, const std::string& part) {
  EXPECT_NE(message_of(layers).find(part), std::string::npos) << message_of(layers);
}

TEST(SideBranches, AreJoinedOnceAndLater) {
  const LayerSpec branch{"side", "s", {}, {{small_conv("c")}}};
  EXPECT_EQ(message_of({branch, {"relu", "r"}, join("j", "s")}), "");
  EXPECT_EQ(output_shape(Network{{branch, join("j", "s", "concat")}}, {2, 4, 3, 3}), Shape({2, 8, 3, 3}));
  expect_message({branch}, "layer s (side): no layer joins its result");
  expect_message({join("j", "s"), branch}, "names the layer 's' before this one, which is the first");
  expect_message({small_conv("c"), join("j", "s"), branch}, "unknown earlier layer 's'; did you mean c? known: c");
  expect_message({branch, join("j", "s"), join("k", "s")}, "the result of s is joined already");
  expect_message({small_conv("c"), join("j", "c")}, "layer c is no side branch");
  expect_message({{"side", "s", {}, {{small_conv("c", 5)}}}, join("j", "s")}, "the input is");
  expect_message({branch, join("j", "s", "mean")}, "known: add, concat");
  expect_message({{"side", "s", {}, std::vector<std::vector<LayerSpec>>(1)}, join("j", "s")}, "its branch is empty");
}

TEST(LayersThatRunAgain, NeedTheSameChannels) {
  EXPECT_EQ(message_of({small_conv("c"),
                        {"max_pool2d", "pool", {{"kernel", int64_t{2}}}},
                        {"again", "d", {{"of", std::string("c")}}}}),
            "");
  expect_message({small_conv("c", 5), {"again", "d", {{"of", std::string("c")}}}}, "the layer has the input");
  expect_message({{"again", "d", {{"of", std::string("c")}}}},
                 "names the layer 'c' before this one, which is the first");
  expect_message({{"dropout", "c"}, {"again", "d", {{"of", std::string("c")}}}}, "a layer dropout cannot run again");
}

}  // namespace
}  // namespace halfmark::models
