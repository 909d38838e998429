// Sizes are read from an id: any order, usual values left out, one clear line for what cannot be.
#include "models/sizes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "models/families.h"
#include "models/trial_testing.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

std::string complaint_about(const std::string& id) {
  try {
    (void)subject_named(id);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_complaint(const std::string& id, const std::string& words) {
  const std::string complaint = complaint_about(id);
  EXPECT_TRUE(complaint.starts_with(id + ": ")) << complaint;
  EXPECT_NE(complaint.find(words), std::string::npos) << complaint;
  EXPECT_EQ(complaint.find('\n'), std::string::npos) << complaint;
}

TEST(Sizes, OneSubjectHasOneId) {
  const Subject& subject = subject_named("conv2d/b32_c256_o256_s14_k3");
  EXPECT_EQ(subject.input, (Shape{32, 256, 14, 14}));
  EXPECT_EQ(subject.id(), "conv2d/b32_c256_o256_s14_k3");
  for (const char* other : {"conv2d/k3_s14_o256_c256_b32", "conv2d/b32_c256_o256_s14_k3_t1_g1_d1_p1",
                            "conv2d/b32_c256_o256_s14x14_k3x3", "conv2d/b32_c256_o256_s14_k3_p1x1"})
    EXPECT_EQ(&subject_named(other), &subject) << other;
  EXPECT_EQ(subject_named("conv2d/b1_c2_o2_s9x7_k3x1_d2").id(), "conv2d/b1_c2_o2_s9x7_k3x1_d2");
  EXPECT_EQ(&subject_named("maxpool/b2_c4_s6_k2_t2"), &subject_named("maxpool/b2_c4_s6_k2"));
}

TEST(Sizes, KeepTheirAddress) {
  const Subject& first = subject_named("linear/b3_i5_o7");
  for (int i = 1; i < 200; ++i) (void)subject_named("linear/b3_i5_o" + std::to_string(100 + i));
  EXPECT_EQ(&subject_named("linear/b3_i5_o7"), &first);
  EXPECT_LT(place_of(subjects().back()), place_of(first));
  EXPECT_LT(place_of(first), place_of(subject_named("linear/b3_i5_o101")));
}

TEST(Sizes, OfHeightAndWidthReachTheLayer) {
  const struct {
    const char* id;
    Shape output;
  } rows[] = {
      {"conv2d/b2_c4_o6_s9x7_k3x1", {2, 6, 9, 7}},         {"conv2d/b2_c4_o6_s9x7_k1x3", {2, 6, 9, 7}},
      {"conv2d/b2_c4_o6_s9x7_k3_t2x1", {2, 6, 5, 7}},      {"conv2d/b2_c4_o6_s9x7_k3_p0", {2, 6, 7, 5}},
      {"conv2d/b2_c4_o6_s9x7_k3_d2x1_p2x0", {2, 6, 9, 5}}, {"conv2d/b2_c4_o6_s9x7_k2", {2, 6, 8, 6}},
      {"maxpool/b2_c4_s9x7_k3x2_t2x1", {2, 4, 4, 6}},      {"avgpool/b2_c4_s9x7_k3x7", {2, 4, 3, 1}},
  };
  for (const auto& [id, output] : rows) {
    Trial trial(test_spec(id, "fp32"));
    trial.load_batch(0);
    EXPECT_EQ(trial.forward().shape(), output) << id;
    trial.backward();
  }
}

TEST(Sizes, ThatCannotBeAreOneLineThatSaysWhy) {
  expect_complaint("conv2d/b2_c4",
                   "without o (output channels), s (image size), k (kernel); conv2d has b batch, c input");
  expect_complaint("conv2d/b2_c4_o6_s6_k3_q2", "unknown 'q2'; conv2d has b batch");
  expect_complaint("conv2d/b2_c4_o6_s6_k3_", "an empty part");
  expect_complaint("conv2d/", "an empty part");
  expect_complaint("conv2d/b2_b2_c4_o6_s6_k3", "b is given twice");
  expect_complaint("conv2d/b0_c4_o6_s6_k3", "b (batch) is 0, not in 1 ... 16777216");
  expect_complaint("conv2d/b99999999999999999999_c4_o6_s6_k3", "b (batch) is more than 16777216");
  for (const char* part : {"b", "b2x2", "b-2", "b+2", "b2.5", "b02", "b 2", "b2e3"})
    expect_complaint("linear/i2_o2_" + std::string(part), "is not b (batch) and a whole number, as b8");
  for (const char* part : {"k", "kx3", "k3x", "k3x3x3", "kx"})
    expect_complaint("conv2d/b2_c4_o6_s6_" + std::string(part), "is not k (kernel) and a whole number, as k8 or k8x4");
  expect_complaint("conv2d/b2_c4_o6_s6_k3_g3", "3 groups do not divide 4 input channels and 6 output channels");
  expect_complaint("conv2d/b2_c6_o4_s6_k3_g3", "3 groups do not divide 6 input channels and 4 output channels");
  expect_complaint("conv2d/b2_c4_o6_s6_k9_p1", "the kernel reaches over 9 rows or columns, the padded image has 8");
  expect_complaint("conv2d/b2_c4_o6_s2x9_k3_d2_p0x2", "reaches over 5 rows or columns, the padded image has 2");
  expect_complaint("maxpool/b2_c4_s6_k7", "the kernel is larger than the image");
  expect_complaint("maxpool/b2_c4_s40_k17", "the kernel has more than 256 places");
  expect_complaint("avgpool/b2_c4_s6x2_k3", "the kernel is larger than the image");
  expect_complaint("batchnorm2d/b1_c4_s1", "needs more than one value of each channel");
  expect_complaint("mlp/b2_i4_h4_o1", "o (classes) is 1, not in 2 ... 16777216");
  expect_complaint("convnet/b2_c3_s1_w4", "needs an image of at least 2 x 2");
  expect_complaint("linear/b16777216_i16777216_o1", "the input would have more than 2^36 elements");
  expect_complaint("linear/b1_i16777216_o16777216", "the weight would have more than 2^36 elements");
  // Sizes that each letter allows, and a layer does not.
  expect_complaint("resnet/b1_s1",
                   "layer bn1 (batchnorm2d): in training needs more than one value of each channel, not");
  expect_complaint("lenet5/b2_c1_s8",
                   "layer conv2 (conv2d): the kernel reaches over 5 rows or columns, the padded image");
  // Each names the letter that is to be changed.
  expect_complaint("speech/b2_f4_t1_h4", "t (time) is 1; a symbol takes at least 8 steps");
  expect_complaint("ctc/b2_t4_o5", "t (time) is 4; the symbols need 16 steps or more");
  expect_complaint("gpt/b1_t4_n1_h1_d2_v1", "v (vocabulary) is 1; it needs 2 or more");
  expect_complaint("bert/b1_t4_n1_h1_d2_v5_o2", "v (vocabulary) is 5, drawn sequences need 64 or more");
  expect_complaint("gpt/b1_t4_n1_h3_d8_v27", "h (heads) is 3, which does not divide d (width), 8");
  expect_complaint("xception/b1_s32_n1_w3_o10", "w (width) is 3; one stage has 91/4 of it");
  expect_complaint("erfnet/b1_s32_n1_w2_o4", "w (width) is 2; the first layer has w channels");
  expect_complaint("xception/b1_s32_n1_w8388608_o10", "its parameters take more addresses than a process has");
  EXPECT_NE(complaint_about("conv3d/b2").find("unknown subject 'conv3d'"), std::string::npos);
}

TEST(Sizes, AreCheckedWithoutMemoryForTheParameters) {
  // A terabyte of parameters, which no allocation on a usual machine gives.
  EXPECT_EQ(complaint_about("mlp/b1_i262144_h262144_o262144"), "");
}

TEST(Families, HaveAnExampleAndDifferentLetters) {
  for (const Family& family : families()) {
    EXPECT_EQ(subject_of(family, family.example).sizes, family.example) << family.name;
    std::set<char> letters;
    for (const SizeLetter& letter : family.letters) {
      EXPECT_TRUE(letters.insert(letter.letter).second) << family.name << ": " << letter.letter;
      EXPECT_NE(letter.letter, 'x') << family.name << ": 3x1 is a pair";
      EXPECT_FALSE(letter.about.empty()) << family.name;
      EXPECT_EQ(letter.usual.empty(), letter.usual_value == nullptr) << family.name << ": " << letter.letter;
    }
  }
}

}  // namespace
}  // namespace halfmark::models
