// Everything that a network can be made of can be measured alone.
#include "models/families.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "models/layers/loss.h"
#include "models/network/layer_kinds.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

// Kinds without a family of their own, with the reason.
const std::map<std::string_view, std::string_view> kNotAlone = {
    {"tied_linear", "it has the weight of another layer"},
    {"again", "it runs another layer"},
    {"side", "its result needs a join"},
    {"join", "it joins the result of a side branch"},
};
const std::map<std::string_view, std::string_view> kLossesNotAlone = {
    {"detection", "its targets are made of the boxes of images: the family detector"},
};

TEST(Families, HaveEachKindOfLayerAlone) {
  std::set<std::string> alone;
  for (const Family& family : families()) {
    const Subject subject = subject_of(family, family.example);
    if (subject.network && subject.network->layers.size() == 1 && !subject.has_labels())
      alone.insert(subject.network->layers[0].kind);
  }
  for (const LayerKind& kind : layer_kinds())
    EXPECT_NE(alone.contains(std::string(kind.name)), kNotAlone.contains(kind.name))
        << kind.name << ": add a family, or the reason why there is none";
  for (const auto& [name, reason] : kNotAlone) EXPECT_NO_THROW(layer_kind_named(name)) << reason;
}

// The family has the name of the loss, and nothing before it has parameters.
TEST(Families, HaveEachLossAlone) {
  for (const LossRow& row : loss_rows()) {
    const Family* family = family_named(row.name);
    ASSERT_NE(family != nullptr, kLossesNotAlone.contains(row.name)) << row.name;
    if (!family) continue;
    const Subject subject = subject_of(*family, family->example);
    EXPECT_EQ(subject.loss.kind, row.kind) << row.name;
    for (const LayerFacts& layer : layer_facts(*subject.network, subject.input))
      EXPECT_EQ(layer.parameters, 0) << row.name << ": " << layer.layer->name;
  }
}

TEST(Families, AreInTheListThatTestsUseExceptWhatAutocastRefuses) {
  std::set<std::string> listed;
  for (const Subject& subject : subjects()) listed.insert(subject.name);
  for (const Family& family : families())
    EXPECT_NE(listed.contains(std::string(family.name)), family.name == "binary_cross_entropy") << family.name;
}

// Letters that were added keep their usual value for the ids that were there before.
TEST(Families, KeepTheMeaningOfOlderIds) {
  const auto layer = [](const char* id) { return subject_named(id).network->layers.at(0); };
  EXPECT_EQ(layer("batchnorm2d/b4_c3_s4").arguments.at("frozen"), Value(false));
  EXPECT_EQ(layer("batchnorm2d/b4_c3_s4").arguments.at("affine"), Value(true));
  EXPECT_EQ(layer("batchnorm2d/b4_c3_s4_m1_a0").arguments.at("frozen"), Value(true));
  EXPECT_EQ(layer("batchnorm2d/b4_c3_s4_m1_a0").arguments.at("affine"), Value(false));
  EXPECT_EQ(layer("linear/b4_i16_o8").arguments.at("weight_norm"), Value(false));
  EXPECT_EQ(subject_named("linear/b4_i16_o8_w0").id(), "linear/b4_i16_o8");
}

}  // namespace
}  // namespace halfmark::models
