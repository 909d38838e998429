// Model files: read and written to the same network, and one clear line for each mistake.
#include "bench/run/model_file.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/tensor/random.h"
#include "models/trial.h"
#include "models/zoo.h"
#include "reports/record/file.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTiny = R"({
  "name": "tiny",
  "input": [3, 8, 8],
  "batch": 4,
  "data": "images",
  "classes": 10,
  "loss": {"loss": "cross_entropy", "smoothing": 0.1},
  "layers": [
    {"layer": "conv2d", "name": "conv1", "out": 4, "kernel": 3, "padding": 1, "bias": false},
    {"layer": "batchnorm2d"},
    {"layer": "relu"},
    {"layer": "add", "name": "block", "branches": [[{"layer": "conv2d", "out": 4, "kernel": [3, 1], "padding": [1, 0]}], []]},
    {"layer": "global_avg_pool2d"},
    {"layer": "flatten"},
    {"layer": "linear", "name": "head", "out": 10}
  ]
})";

std::string complaint_about(const std::string& text) {
  try {
    model_in(text, "tiny.json");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

std::string with(const std::string& old, const std::string& now) {
  std::string text = kTiny;
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(ModelFile, IsReadWithItsLayersDataAndLoss) {
  const Subject tiny = model_in(kTiny, "tiny.json");
  EXPECT_EQ(tiny.id(), "tiny/b4");
  EXPECT_EQ(tiny.input, Shape({4, 3, 8, 8}));
  EXPECT_EQ(tiny.classes, 10);
  EXPECT_EQ(tiny.loss.smoothing, 0.1);
  ASSERT_EQ(tiny.network->layers.size(), 7u);
  EXPECT_EQ(tiny.network->layers[1].name, "batchnorm2d2") << "a layer without a name has its kind and its place";
  EXPECT_EQ(tiny.network->layers[3].branches.size(), 2u);
}

TEST(ModelFile, OfStreetsWithoutALossIgnoresPixelsWithoutALabel) {
  const Subject streets = model_in(R"({"name": "s", "input": [3, 8, 8], "batch": 2, "data": "streets", "classes": 6,
    "layers": [{"layer": "conv2d", "out": 6, "kernel": 1}]})",
                                   "s.json");
  EXPECT_EQ(streets.loss.kind, LossKind::cross_entropy);
  EXPECT_EQ(streets.loss.ignored, kUnlabelled);
}

TEST(ModelFile, OfEverySubjectOfTheListIsReadBackToTheSameDefinition) {
  for (const Subject& subject : subjects()) {
    if (!subject.network) continue;
    const Subject again = model_in(model_json(subject).dump(1), subject.id());
    EXPECT_EQ(definition_of(again), definition_of(subject)) << subject.id();
    EXPECT_EQ(again.input, subject.input) << subject.id();
  }
}

TEST(ModelFile, WritesWholeNumbersAsSuchAndANameWithoutSizes) {
  const std::string text = R"({"name": "padded", "input": [4, 12], "batch": 3, "data": "normal",
    "layers": [{"layer": "self_attention", "name": "a", "heads": 2, "lengths": [4, 2, 0]}]})";
  const nlohmann::ordered_json json = model_json(model_in(text, "padded.json"));
  EXPECT_EQ(json["layers"][0]["lengths"].dump(), "[4,2,0]");
  EXPECT_EQ(json["name"], "padded");
  EXPECT_EQ(model_json(subject_named("resnet/b2_s8_n1_w4_o3"))["name"], "my_resnet")
      << "its sizes are there to be changed";
}

// Not by the hash alone: initial values, data and every step agree bit by bit.
TEST(ModelFile, OfABuiltInModelTrainsToTheSameBits) {
  const Subject& built_in = subject_named("convnet/b4_c1_s8_w4");
  const Subject read = model_in(model_json(built_in).dump(), "convnet.json");
  std::vector<std::vector<double>> ends;
  for (const Subject* subject : {&built_in, &read}) {
    TrialSpec spec;
    spec.subject = subject, spec.device = open_device("cpu"), spec.policy = &policy_named("amp-fp16"), spec.seed = 7;
    Trial trial(spec);
    for (int64_t step = 0; step < 3; ++step) trial.train_step(step);
    std::vector<double>& all = ends.emplace_back();
    for (const Param* param : trial.params()) {
      const std::vector<double> values = param->value.values();
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(ModelFile, DefinitionChangesWithEveryArgumentAndNotWithNamesOfFiles) {
  const std::string base = definition_of(model_in(kTiny, "a.json"));
  EXPECT_EQ(definition_of(model_in(kTiny, "b.json")), base);
  EXPECT_EQ(definition_of(model_in(with("\"bias\": false", "\"bias\": false, \"stride\": 1"), "c.json")), base)
      << "a usual value is the same as none";
  for (const auto& [old, now] : std::vector<std::pair<std::string, std::string>>{
           {"\"bias\": false", "\"bias\": true"},
           {"0.1", "0.2"},
           {"\"batch\": 4", "\"batch\": 5"},
           {"\"relu\"", "\"silu\""},
           {"[3, 1], \"padding\": [1, 0]", "[1, 3], \"padding\": [0, 1]"},
           {"{\"layer\": \"batchnorm2d\"}", "{\"layer\": \"batchnorm2d\", \"epsilon\": 1e-3}"}})
    EXPECT_NE(definition_of(model_in(with(old, now), "d.json")), base) << now;
}

TEST(ModelFile, EveryMistakeIsOneLineWithItsPlaceAndWhatIsKnown) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"{", {"tiny.json", "cut short"}},
      {"[]", {"tiny.json", "not an object"}},
      {with("\"name\": \"tiny\",", ""), {"tiny.json:1", "needs \"name\""}},
      {with("\"tiny\"", "\"ti/ny\""), {"tiny.json:2", "letters, digits"}},
      {with("[3, 8, 8]", "[3, 8]"), {"tiny.json:3", "images", "rank 3"}},
      {with("[3, 8, 8]", "[3,\n -8, 8]"), {"tiny.json:4", "-8, not in 1 ... 16777216"}},
      {with("\"batch\": 4", "\"batch\": \"4\""), {"tiny.json:4: \"batch\" is \"4\", not a whole number"}},
      {with("\"images\"", "\"pictures\""), {"tiny.json:5", "pictures", "normal, images, points, streets"}},
      {with("\"classes\": 10", "\"classes\": 1"), {"tiny.json:6: \"classes\" is 1", "2 or more"}},
      {with("\"batch\": 4,", "\"batch\": 4,\n  \"batch\": 5,"),
       {"tiny.json: has \"batch\" twice in one object, again in line 5"}},
      {with("\"batch\": 4,", "\"batch\": 4"),
       {"line 5, column 3, where \"data\" begins (is a comma missing before it?)"}},
      {with("{\"layer\": \"relu\"},", "{\"layer\": \"relu\"}"),
       {"line 12, column 5, where { begins (is a comma missing"}},
      {with("\"bias\": false", "\"bias\": False"), {"line 9, column 87, where False begins (JSON writes true, false"}},
      {with("\"out\": 10}", "\"out\": 10},"), {"line 16, column 3, where ] begins (JSON has no comma after the last"}},
      {with("\"batch\": 4", "'batch': 4"), {"line 4, column 3, where ' begins (JSON has words in double quotes)"}},
      {with("\"batch\": 4,", "\"batch\": 4,  // samples"),
       {"line 4, column 16, where / begins (JSON has no comments)"}},
      {with("{\"layer\": \"relu\"}", "{\"layer\": \"again\", \"of\": \"conv7\"}"),
       {"tiny.json:11: layer again3 (again): unknown earlier layer 'conv7'; did you mean conv1? known: batchnorm2d2, "
        "conv1"}},
      {with("{\"layer\": \"relu\"}", "{\"layer\": \"max_pool2d\", \"kernel\": 20}"),
       {"tiny.json:11: layer max_pool2d3 (max_pool2d): the kernel reaches over 20 rows or columns, the padded image"}},
      {with("\"classes\": 10", "\"classes\": 1e999"), {"tiny.json: line 6 holds 1e999, a number too large"}},
      {with("{\"loss\": \"cross_entropy\", \"smoothing\": 0.1}", "\"mse\""), {"tiny.json:7: \"loss\" is \"mse\""}},
      {with("\"classes\": 10", "\"classes\": 9"), {"tiny.json:15: the last layer gives", "9 classes"}},
      {with("\"batch\"", "\"bacth\""), {"tiny.json:4: unknown \"bacth\"", "known:", "batch"}},
      {with("cross_entropy", "cross_entrpy"), {"tiny.json:7", "cross_entrpy", "cross_entropy"}},
      {with("0.1", "1.5"), {"tiny.json:7", "smoothing is 1.5, not in 0 ... 1"}},
      {with("cross_entropy\"", "mse\""), {"tiny.json:7", "unknown argument \"smoothing\""}},
      {with("\"conv2d\", \"name\"", "\"conv3\", \"name\""), {"tiny.json:9", "conv3", "conv2d"}},
      {with("\"kernel\": 3,", "\"kernel\": 0,"), {"tiny.json:9: layer conv1 (conv2d): kernel is 0, not in 1 ... 1024"}},
      {with("\"kernel\": 3,", "\"kernel\": \"3\","),
       {"tiny.json:9: layer conv1 (conv2d): kernel is \"3\", not a whole number"}},
      {with("\"kernel\": 3,", "\"kernle\": 3,"),
       {"tiny.json:9: layer conv1 (conv2d): unknown argument \"kernle\"", "mean kernel"}},
      {with("\"kernel\": 3,", ""), {"tiny.json:9: layer conv1 (conv2d): needs \"kernel\""}},
      {with("\"kernel\": 3,", "\"kernel\": 13,"), {"tiny.json:9: layer conv1 (conv2d): the kernel reaches over 13"}},
      {with("\"kernel\": 3,", "\"kernel\": [1, 2, null],"), {"tiny.json:9", "kernel"}},
      {with("\"kernel\": 3,", "\"kernel\": 3, \"groups\": 2,"),
       {"tiny.json:9: layer conv1 (conv2d): 2 groups do not divide 3"}},
      {with("\"head\"", "\"conv1\""),
       {"tiny.json:15: layer conv1 (linear): its name is that of another layer, conv2d in line 9"}},
      {with(", []]", "]"), {"tiny.json:12: layer block (add)", "two branches"}},
      {with("\"kernel\": [3, 1], \"padding\": [1, 0]", "\"kernel\": 1, \"stride\": 2"), {"block", "give the shapes"}},
      {with("{\"layer\": \"flatten\"},", ""),
       {"tiny.json:15: layer head (linear)", "needs an input [batch, features]", "flatten"}},
      {R"({"name": "s", "input": [5, 1, 32], "batch": 2, "data": "speech", "classes": 5,
           "loss": {"loss": "ctc", "blank": 4}, "layers": [{"layer": "to_sequence"}]})",
       {"tiny.json:2: blank is 4: the labels of speech have the blank 0"}},
      {with("{\"layer\": \"relu\"}", "7"), {"tiny.json:11: 7 is no layer"}},
      {with("{\"layer\": \"relu\"}", "\"relu\""), {"tiny.json:11: \"relu\" is no layer"}},
      {with("\"branches\": [[", "\"branch\": [["),
       {"tiny.json:12: layer block (add): unknown argument \"branch\"", "did you mean branches?"}},
      {with("\"layers\"", "\"training\": {\"optimizer\": \"adamw\", \"momentum\": 0.9},\n \"layers\""),
       {"tiny.json:8: adamw has no momentum"}},
      {with("\"bias\": false", "\"bias\": false, \"bias_start\": 1"),
       {"tiny.json:9: layer conv1 (conv2d): \"bias_start\" has an effect only with \"bias\": true, not false"}},
      {with("\"bias\": false", "\"deviation\": 0.5"),
       {"tiny.json:9: layer conv1 (conv2d): \"deviation\" has an effect only with \"start\": \"normal\", not "
        "\"torch\""}},
      {with("{\"loss\": \"cross_entropy\", \"smoothing\": 0.1}", "{\"loss\": \"binary_cross_entropy\"}"),
       {"tiny.json:7: loss \"binary_cross_entropy\" takes probabilities", "sigmoid"}},
      {R"({"name": "t", "input": [12], "batch": 2, "data": "tokens", "classes": 4, "layers": [
           {"layer": "embedding", "name": "e", "entries": 63, "features": 4}, {"layer": "take_step"},
           {"layer": "linear", "out": 4}]})",
       {"tiny.json:2: layer e (embedding): entries is 63, data \"tokens\" need 64 or more"}},
      {R"({"name": "s", "input": [3, 8, 8], "batch": 2, "data": "streets", "classes": 6,
           "loss": {"loss": "cross_entropy"}, "layers": [{"layer": "conv2d", "out": 6, "kernel": 1}]})",
       {"tiny.json:2: the labels of streets have 255", "set \"ignored\": 255"}},
      {with("\"name\": \"tiny\"", "\"name\": \"a \\\" {[:,\\\\\""), {"tiny.json:2: \"name\" is "}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string said = complaint_about(text);
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  }
}

// Bytes replaced, dropped, doubled and moved: each result is a model or one printable line. Seeded.
TEST(ModelFile, AThousandMutationsAreReadOrRefusedWithOneLine) {
  const std::string base = kTiny;
  size_t refused = 0;
  for (uint64_t number = 0; number < 1000; ++number) {
    const RandomKey key = RandomKey(15).child(number);
    std::string text = base;
    for (uint64_t edit = 0; edit <= key.below(0, 3); ++edit) {
      const RandomKey own = key.child(edit);
      const size_t at = own.below(1, text.size()), length = 1 + own.below(2, 12);
      const std::string piece = text.substr(own.below(3, text.size()), length);
      switch (own.below(4, 5)) {
        case 0:
          text[at] = static_cast<char>(own.below(5, 256));
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, piece);
          break;
        case 3:
          text.replace(at, std::min(length, text.size() - at), piece);
          break;
        default: {
          const char* const kWords[] = {"null", "-1", "1e400", "[]", "{}", "99999999999999999999", "\"\\u0000\"", "0"};
          const size_t end = text.find_first_of(",]}", at);
          if (const size_t colon = text.rfind(": ", at);
              colon != std::string::npos && end != std::string::npos && colon < end)
            text.replace(colon + 2, end - colon - 2, kWords[own.below(6, std::size(kWords))]);
        }
      }
    }
    const std::string said = complaint_about(text);
    if (said == "nothing") continue;
    ++refused;
    EXPECT_TRUE(said.starts_with("tiny.json")) << said;
    EXPECT_LT(said.size(), 1500u) << said;
    EXPECT_TRUE(std::ranges::all_of(said, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; }))
        << said;
  }
  EXPECT_GT(refused, 700u);
}

// Every value of the tree replaced by every kind of wrong value, every member and element left out, every element doubled:
// each result is a model or one printable line, soon and without much memory.
class MutatedTrees {
 public:
  MutatedTrees(const Json& root, std::function<void(const std::string&)> use) : root_(root), use_(std::move(use)) {
    visit(Json::json_pointer());
  }

 private:
  void try_with(const auto& change) const {
    Json mutated = root_;
    change(mutated);
    use_(mutated.dump());
  }
  void visit(const Json::json_pointer& at) {
    static const Json kWrong[] = {nullptr,
                                  true,
                                  -1,
                                  0,
                                  1,
                                  2.5,
                                  1e308,
                                  99'999'999'999,
                                  int64_t{1} << 40,
                                  uint64_t{18'446'744'073'709'551'615U},
                                  "",
                                  "conv1",
                                  std::string(10'000, 'x'),
                                  "\x01\x7f\n",
                                  Json::array(),
                                  Json::array({1, 2}),
                                  Json::array({99'999'999'999, 99'999'999'999}),
                                  Json::object(),
                                  Json::object({{"layer", "relu"}})};
    const Json& here = root_.at(at);
    for (const Json& wrong : kWrong) try_with([&](Json& root) { root[at] = wrong; });
    if (here.is_object())
      for (const auto& [key, value] : here.items()) {
        try_with([&, name = key](Json& root) { root[at].erase(name); });
        visit(at / key);
      }
    if (here.is_array())
      for (size_t i = 0; i < here.size(); ++i) {
        try_with([&](Json& root) { root[at].erase(i); });
        try_with([&](Json& root) { root[at].push_back(here[i]); });
        visit(at / i);
      }
  }

  const Json& root_;
  std::function<void(const std::string&)> use_;
};

TEST(ModelFile, EveryChangeOfItsTreeIsReadOrRefusedWithOneLineAndWithoutMuchMemory) {
  const std::string file = test_folders::source() + "/bench/models/six_layers.json";
  const Json root = Json::parse(reports::read_file(file));
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  size_t tried = 0, refused = 0;
  MutatedTrees(root, [&](const std::string& text) {
    ++tried;
    const std::string said = complaint_about(text);
    if (said == "nothing") return;
    ++refused;
    EXPECT_TRUE(said.starts_with("tiny.json")) << said;
    EXPECT_LT(said.size(), 1500u) << said;
    EXPECT_TRUE(std::ranges::all_of(said, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; }))
        << said;
  });
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_GT(tried, 1000u);
  EXPECT_GT(refused, tried * 8 / 10);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1 << 20) << "KiB";
}

TEST(ModelFile, OfTooManyOrTooDeepLayersIsRefusedInALine) {
  const auto layers_of = [](const std::string& layers) {
    return R"({"name": "m", "input": [4], "batch": 2, "data": "normal", "layers": [)" + layers + "]}";
  };
  std::string many, deep, ends;
  for (int i = 0; i < 100'000; ++i) many += std::string(i ? "," : "") + R"({"layer":"relu"})";
  for (int i = 0; i < 10'000; ++i) deep += R"({"layer":"checkpoint","branches":[[)", ends += "]]}";
  for (const auto& [text, part] : {std::pair{layers_of(many), "more than 10000 layers"},
                                   {layers_of(deep + R"({"layer":"relu"})" + ends), "deep"},
                                   {layers_of(deep), "deep"},
                                   {std::string(1'000'000, '['), "deep"}}) {
    const std::string said = complaint_about(text);
    EXPECT_NE(said.find(part), std::string::npos) << said.substr(0, 300);
    EXPECT_LT(said.size(), 500u);
  }
}

}  // namespace
}  // namespace halfmark::bench
