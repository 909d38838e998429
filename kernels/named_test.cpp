// One lookup for every table: it returns the row, or one line
// that lists the known names and suggests the most similar ones.
#include "kernels/number/named.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/number/arithmetic.h"
#include "kernels/number/block_scaled.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

struct Row {
  std::string_view name;
  bool hidden = false;
};
constexpr std::array kRows{Row{"mlp"}, Row{"convnet"}, Row{"oracle", true}, Row{"conv2d"}};
constexpr auto kListed = [](const Row& row) { return !row.hidden; };

std::string message(std::string_view name) {
  try {
    named("subject", kRows, name, &Row::name, kListed);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Named, FindsEveryRowAndTheHiddenOneToo) {
  for (const Row& row : kRows) EXPECT_EQ(&named("subject", kRows, row.name, &Row::name, kListed), &row);
  EXPECT_EQ(&named("subject", kRows, "conv2d"), &kRows[3]) << "by a member that is called name";
}

TEST(Named, AnUnknownNameListsWhatIsListedAndSuggestsTheNearest) {
  EXPECT_EQ(message("convent"),
            "unknown subject 'convent'; did you mean convnet or conv2d? known: mlp, convnet, conv2d");
  EXPECT_EQ(message("mpl"), "unknown subject 'mpl'; did you mean mlp? known: mlp, convnet, conv2d") << "two exchanged";
  EXPECT_EQ(message("pml"), "unknown subject 'pml'; known: mlp, convnet, conv2d");
  EXPECT_EQ(message("conv"), "unknown subject 'conv'; did you mean convnet or conv2d? known: mlp, convnet, conv2d");
  EXPECT_EQ(message("oracl"), "unknown subject 'oracl'; known: mlp, convnet, conv2d") << "no hidden row suggested";
  EXPECT_EQ(message(""), "unknown subject ''; known: mlp, convnet, conv2d");
}

TEST(Named, OfALongListTheFirstNamesAreShown) {
  std::vector<std::string> known;
  for (int i = 0; i < 60; ++i) known.push_back("layer_" + std::to_string(10 + i));  // 200 / (8 + 2) = 20
  try {
    throw_unknown_name("kind", "layer_690", known);
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_TRUE(said.starts_with("unknown kind 'layer_690'; did you mean layer_60 or layer_69")) << said;
    EXPECT_TRUE(said.ends_with("layer_28, layer_29 and 40 more")) << said;
  }
  try {
    throw_unknown_name("kind", "layer_690", known, "halfmark list kinds");
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what()).ends_with("layer_29 and 40 more: halfmark list kinds")) << error.what();
  }
}

TEST(NearestNames, AreTheThreeThatAreWrittenMostAlike) {
  const std::vector<std::string> known{"fp64", "fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3"};
  EXPECT_EQ(nearest_names("fp17", known), (std::vector<std::string>{"fp16", "fp64", "fp32"}));
  EXPECT_EQ(nearest_names("e4m3fn", known), (std::vector<std::string>{"e4m3"})) << "which it contains";
  EXPECT_TRUE(nearest_names("posit", known).empty());
  EXPECT_EQ(nearest_names("FP16", known), (std::vector<std::string>{"fp16"})) << "only its capitals are wrong";
  EXPECT_EQ(nearest_names("FP17", known), nearest_names("fp17", known));
}

template <class Lookup>
void expect_form(const Lookup& lookup, const std::string& beginning) {
  try {
    lookup();
    FAIL() << "accepted where this was expected: " << beginning;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, beginning.size()), beginning);
  }
}

TEST(Named, EveryTableOfNumbersSpeaksTheSameWay) {
  expect_form([] { format_named("no"); }, "unknown format 'no'; known: fp64, fp32");
  expect_form([] { rounding_named("no"); }, "unknown rounding 'no'; known: near_even, toward_zero");
  expect_form([] { overflow_named("no"); }, "unknown overflow rule 'no'; known: infinity, nan, saturate");
  expect_form([] { dtype_named("no"); }, "unknown dtype 'no'; known: f64, f32");
  expect_form([] { operation_named("no"); }, "unknown operation 'no'; known: add, sub");
  expect_form([] { block_format_named("no"); }, "unknown block format 'no'; known: mxfp8-e4m3");
}

}  // namespace
}  // namespace halfmark::kernels
