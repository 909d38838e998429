// A newcomer's model file: every command takes it, and each mistake in it is one clear line, soon and without much memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"
#include "reports/record/journal.h"
#include "reports/record/paths_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

const std::filesystem::path kSourceFolder = test_folders::source();

class NewcomersModel : public ProcessTest {
 protected:
  static std::string six_layers() { return read(kSourceFolder / "bench/models/six_layers.json"); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
};

TEST_F(NewcomersModel, RunsAtAnotherBatchThatAWordNames) {
  write("mine.json", six_layers());
  const std::string run = "run --model mine.json --device cpu --dry-run ";
  EXPECT_EQ(halfmark(run + "six_layers/b64 fp16 error").out, "six_layers/b64/cpu/fp16/error\n");
  EXPECT_EQ(halfmark(run + "six_layers/b64 six_layers/b32 fp16 error").out,
            "six_layers/b32/cpu/fp16/error\nsix_layers/b64/cpu/fp16/error\n");
  EXPECT_EQ(halfmark(run + "fp16 error").out, "six_layers/b32/cpu/fp16/error\n") << "its own alone";
  expect_complaint(run + "mlp error", "no case of the listed subjects contains 'mlp'; --model restricts");
  write("again.json", six_layers());
  expect_complaint("run --model mine.json --model again.json",
                   "again.json: \"name\" is \"six_layers\", which is the name of the model of mine.json");
  write("list.csv", "subject\nmlp/b8_i16_h24_o10\n");
  expect_complaint(run + "--shapes list.csv error",
                   "list.csv: names no six_layers, the model of --model; add six_layers/b32 or leave out --model");
  write("list.csv", "subject\nmlp/b8_i16_h24_o10\nsix_layers/b32\n");
  expect_complaint(run + "--shapes list.csv six_layers/b64 error", "--shapes restricts the subjects to its list");
}

TEST_F(NewcomersModel, IsNamedWhereAnOptionHasNoEffect) {
  write("mine.json", six_layers());
  const std::string dump = "dump --model mine.json -o tensors six_layers/b32/cpu/amp-fp16";
  expect_complaint(dump + "/error", "without a harness");
  expect_complaint(dump + " --overflows 0010 --steps 7", "--steps 7: --overflows has 4 steps");
  expect_complaint(dump + " --growth-interval 2", "--growth-interval 2: only with --overflows");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "tensors"));
  const std::string run = "run --device cpu --dry-run --model mine.json ";
  expect_complaint(run + "fp16+scaler=torch error", "changes of a policy are options");
  expect_complaint(run + "--policy fp16+scaler=torch error", "changes of a policy are options");
  expect_complaint(run + "--scaler torhc error", "did you mean torch?");
  expect_complaint(run + "--scaler static:0 error", "the scale '0' is not a positive number");
  expect_complaint(run + "--policy fp16 --cast-rules keras error",
                   "policy fp16 casts nothing, so it takes no cast rules");
  // A misspelt name is said whatever the policy is, also by one that takes no such change.
  for (const char* policy : {"fp32", "fp16", "bf16", "amp-fp16", "amp-bf16", "apex-o2", "fp16-master", "mxfp8"})
    for (const auto& [option, about] : {std::pair{"--cast-rules kerass", "did you mean keras?"},
                                        {"--scaler torhc", "did you mean torch?"},
                                        {"--scaler torch:0", "the scale '0' is not a positive number"},
                                        {"--scaler torch:1e400", "the scale '1e400' is out of the range of numbers"},
                                        {"--scaler apex:33554432", "is above 16777216, the largest that this scaler"},
                                        {"--scaler static:1e-50", "is below 2^-126"},
                                        {"--scaler torch:1024:1.5", "'1.5' is not a positive whole number"},
                                        {"--scaler tensorflow:0.25", "is below 1, the least that this scaler takes"},
                                        {"--precision conv1=fp33", "did you mean fp32"},
                                        {"--precision conv1", "is not LAYER=POLICY"},
                                        {"--cast-rules torch-cuda+scaler=torch", "unknown cast rules"}})
      expect_complaint(fmt::format("{}--policy {} {} error", run, policy, option), about);
  expect_complaint(run + "--precision conv9=fp32 error", "has no layer with a policy of its own 'conv9'");
  expect_complaint(run + "--precision 'z*=fp32' error", "has no layer with a policy of its own like 'z*'");
  expect_complaint(run + "--precision conv1 error", "is not LAYER=POLICY");
  expect_complaint(run + "--precision conv1=fp33 error", "did you mean fp32");
  expect_complaint(run + "--precision conv1=fp32,conv1=fp16 error", "'conv1' is there twice");
  expect_complaint(run + "--precision conv1=fp8-current error",
                   "policy fp8-current of 'conv1' quantises linear layers without weight norm; of ");
  expect_complaint(run + "--precision conv1=amp-fp16+scaler=static:2 error", "without changes");
  expect_complaint(run + "six_layer error", "did you mean six_layers");
  write("report.json", "{}");
  expect_complaint("run --device cpu --dry-run --shapes . error", ".: cannot be read");
  expect_complaint("run --case nobody/b2/cpu/fp32/error", "a model of your own is read with --model FILE");
  expect_complaint("quantize --rule te-nvfp4 --seed 4", "--seed 4: only with --stochastic");
  expect_complaint("quantize --rule te-nvfp4 --depth 0", "--depth");
  expect_complaint("quantize --rule te-nvfp4 --input f64", "--input f64: a tensor is in f32, bf16 or f16");
  expect_complaint("plan mlp/b8_i16_h24_o10 --policy nvfp4 --device cpu", "which limits nothing: give --tolerance");
  expect_complaint("list subjects --json mlp/b8_i16_h24_o10 linear/b4_i16_o8", "a model file is one model");
}

// One id, two networks: what was measured on one must not stand beside the other in a report.
TEST_F(NewcomersModel, ThatHasChangedJoinsNoEarlierRecords) {
  std::string wider = six_layers();
  wider.replace(wider.find("\"out\": 16"), 9, "\"out\": 17");
  wider.replace(wider.find("\"out\": 16"), 9, "\"out\": 17");  // the shortcut of its block
  write("mine.json", six_layers());
  const std::string run = "run --no-probes --device cpu --model mine.json fp32 fp16 error memory -o ";
  ASSERT_EQ(halfmark(run + "whole.json").code, 0);
  Report header = Report::load(folder_ / "whole.json");
  ASSERT_EQ(header.records.size(), 4u);
  header.run.command = "halfmark " + run + "whole.json";
  const Record first = header.records[0];
  header.records.clear();
  Journal::create(journal_of(folder_ / "whole.json"), header).append(first);
  std::filesystem::copy_file(folder_ / "whole.json.journal", folder_ / "kept.journal");
  ASSERT_EQ(halfmark(run + "whole.json --resume").code, 0);

  std::filesystem::copy_file(folder_ / "kept.journal", folder_ / "whole.json.journal");
  ASSERT_EQ(halfmark(run + "1.json --shard 1/2").code, 0);
  ASSERT_EQ(halfmark(run + "2.json --shard 2/2").code, 0);
  EXPECT_EQ(halfmark("merge 1.json 2.json -o both.json").code, 0) << read(folder_ / "stderr");
  write("mine.json", wider);
  const Result resumed = halfmark(run + "whole.json --resume");
  EXPECT_EQ(resumed.code, 2);
  EXPECT_TRUE(says(resumed.err, "start without --resume") || says(resumed.err, "have changed since")) << resumed.err;
  ASSERT_EQ(halfmark(run + "2.json --shard 2/2").code, 0);
  expect_complaint("merge 1.json 2.json -o mixed.json", "do not belong together: the plan of cases, networks and data");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "mixed.json"));
}

class SlowNewcomersModel : public NewcomersModel {};

TEST_F(SlowNewcomersModel, GoesThroughRunShowCompareGateAbAndCharts) {
  write("mine.json", six_layers());
  const std::string run = "run --no-probes --device cpu --model mine.json fp32 amp-fp16 error range memory training ";
  for (const char* report : {"base.json", "new.json"}) {
    const Result ran = halfmark(run + "-o " + report);
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  const Report base = Report::load(folder_ / "base.json");
  EXPECT_EQ(base.records.size(), 8u) << "two policies, four harnesses";
  for (const Record& record : base.records) {
    EXPECT_EQ(record.status, Status::ok) << record.id << ": " << record.reason;
    EXPECT_EQ(record.subject, "six_layers/b32");
    EXPECT_TRUE(says(record.repro, "--model " + (folder_ / "mine.json").string())) << "from any folder\n"
                                                                                   << record.repro;
  }
  // The command of a record runs it again alone.
  const Result again =
      shell("cd / && \"$HALFMARK\" " + base.records.front().repro.substr(base.records.front().repro.find(' ')));
  EXPECT_EQ(again.code, 0) << again.err;

  const Result shown = halfmark("show base.json");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_TRUE(says(shown.out, "six_layers/b32 on cpu")) << shown.out;
  const Result compared = halfmark("compare base.json new.json");
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_TRUE(says(compared.out, "six_layers/b32")) << compared.out;
  const Result gated = halfmark("gate base.json new.json");
  EXPECT_EQ(gated.code, 0) << gated.out << gated.err;

  // A changed network is another subject: its numbers are not compared.
  std::string wider = six_layers();
  const size_t at = wider.find("\"out\": 16");
  ASSERT_NE(at, std::string::npos);
  wider.replace(at, 9, "\"out\": 17");
  write("mine.json", wider.replace(wider.find("\"out\": 16"), 9, "\"out\": 17"));
  ASSERT_EQ(halfmark(run + "-o wider.json").code, 0);
  const Result other = halfmark("gate base.json wider.json");
  EXPECT_EQ(other.code, 1) << other.out << other.err;
  EXPECT_TRUE(says(other.out, "is another subject of the same name")) << other.out;

  write("mine.json", six_layers());
  // Times take minutes on a busy machine; the numbers come from fresh processes of both builds all the same.
  const bool timed = std::getenv("HALFMARK_LONG") != nullptr;
  const Result judged = halfmark("ab '" + program() + "' '" + program() + "' --model mine.json six_layers fp32 error " +
                                 (timed ? "throughput --threads 1" : "--numbers-only"));
  EXPECT_TRUE(judged.code == 0 || (timed && judged.code == 3)) << judged.code << judged.out << judged.err;
  EXPECT_TRUE(says(judged.out, timed ? "six_layers/b32" : "PASS: ")) << judged.out << judged.err;

  if (std::string(HALFMARK_PYTHON).empty() || shell(std::string(HALFMARK_PYTHON) + " -c 'import matplotlib'").code != 0)
    GTEST_SKIP() << "no Python with matplotlib: the charts were not drawn";
  const Result drawn = shell(std::string(HALFMARK_PYTHON) + " " +
                             quoted((kSourceFolder / "scripts/charts.py").string()) + " base.json -o charts");
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "charts/training.png")) << drawn.out << drawn.err;
}

// Unlike the time on a clock, it does not grow with the load of the machine.
double processor_seconds_of_children() {
  rusage children{};
  ::getrusage(RUSAGE_CHILDREN, &children);
  const auto seconds = [](timeval time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(children.ru_utime) + seconds(children.ru_stime);
}

#if HALFMARK_SANITIZED  // reserves terabytes of addresses
const std::string kLittleMemory = "";
#else
const std::string kLittleMemory = "ulimit -v 4194304; ";  // KiB of addresses; a run takes 1.5 GiB
#endif

// Through the program: reading happens before anything runs.
TEST_F(NewcomersModel, EveryMistakeIsOneLineSoonAndWithoutMuchMemory) {
  struct Mistake {
    std::string old, now, about;
  };
  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += R"({"layer": "checkpoint", "branches": [[)";
  const std::vector<Mistake> mistakes = {
      {R"("batch": 32)", R"("batch": 1099511627776)", "\"batch\""},
      {R"("batch": 32)", R"("batch": 0)", "\"batch\""},
      {R"("batch": 32)", R"("batch": -1)", "\"batch\""},
      {R"("batch": 32)", R"("batch": 1e400)", "too large"},
      {R"("batch": 32)", R"("batch": "32")", "\"batch\""},
      {R"("batch": 32)", R"("batch": null)", "\"batch\""},
      {R"("batch": 32,)", "", "\"batch\""},
      {R"("batch": 32)", R"("batch": 32, "batch": 33)", "batch"},
      {"[3, 16, 16]", "[3, 16]", "rank"},
      {"[3, 16, 16]", "[]", "\"input\""},
      {"[3, 16, 16]", "[3, 99999999999, 16]", "99999999999"},
      {"[3, 16, 16]", "[16777216, 16777216, 16777216]", "2^36"},
      {"[3, 16, 16]", "[3, [16], 16]", "\"input\""},
      {"[3, 16, 16]", "[3, 2, 2]", "pool"},
      {R"("classes": 10)", R"("classes": 1)", "\"classes\""},
      {R"("classes": 10)", R"("classes": 11)", "11 classes"},
      {R"("classes": 10)", R"("classes": 99999999999)", "99999999999"},
      {R"("images")", R"("photos")", "photos"},
      {R"("six_layers")", R"("mlp")", "mlp"},
      {R"("six_layers")", R"("cpu")", "cpu"},
      {R"("six_layers")", R"("..")", ".."},
      {R"("smoothing": 0.1)", R"("smoothing": -0.1)", "smoothing"},
      {R"("smoothing": 0.1)", R"("smoothing": [0.1, 0.2, 0.3])", "smoothing"},
      {R"("adamw")", R"("adamax")", "adamax"},
      {R"("rate": 0.002)", R"("rate": -0.002)", "rate"},
      {R"("rate": 0.002)", R"("rate": "fast")", "rate"},
      {R"("kernel": 3, "padding": 1, "bias": false)", R"("kernel": 300, "padding": 1)", "300"},
      {R"("kernel": 3, "padding": 1, "bias": false)", R"("kernel": 0)", "kernel"},
      {R"("kernel": 4)", R"("kernel": 17)", "17"},
      {R"("out": 16, "kernel": 3, "padding": 1, "bias")", R"("out": 99999999999, "kernel": 3, "padding": 1, "bias")",
       "out"},
      {R"("name": "head", "out": 10)", R"("name": "head", "out": 9007199254740992)", "out"},
      {R"("name": "head", "out": 10)", R"("name": "head", "out": 1e1)", "out"},
      {R"("name": "head", "out": 10)", R"("name": "head")", "out"},
      {R"("name": "relu1")", R"("name": "bn1")", "that of another layer"},
      {R"("layer": "flatten", "name": "flatten")", R"("layer": "flatten", "name": "flatten", "branches": [[]])",
       "branches"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "relu", "name": "relu1", "slope": 0.1)", "slope"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "tied_linear", "name": "relu1", "weight_of": "relu1")",
       "relu1"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "tied_linear", "name": "relu1", "weight_of": "head")",
       "head"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "add", "name": "relu1", "branches": [[], []])", "empty"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "concat", "name": "relu1", "branches": [])", "branch"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "checkpoint", "name": "relu1", "branches": [[]])", "empty"},
      {R"("layer": "relu", "name": "relu1")", R"("layer": "checkpoint", "name": "relu1", "branches": 7)", "branches"},
      {R"({"layer": "relu", "name": "relu1"})", "null", "null"},
      {R"({"layer": "relu", "name": "relu1"})", nested, "mine.json"},
      {R"({"layer": "relu", "name": "relu1"})", std::string(100'000, '['), "mine.json"},
      {R"("layers": [)", R"("layers": [], "more": [)", "more"},
  };
  for (const Mistake& mistake : mistakes) {
    std::string text = six_layers();
    const size_t at = text.find(mistake.old);
    ASSERT_NE(at, std::string::npos) << mistake.old;
    write("mine.json", text.replace(at, mistake.old.size(), mistake.now));
    const double start = processor_seconds_of_children();
    const std::string arguments = "run --no-probes --device cpu --model mine.json fp32 error";
    expect_complaint(shell(kLittleMemory + "\"$HALFMARK\" " + arguments), arguments, mistake.about);
    EXPECT_LT(processor_seconds_of_children() - start, 5) << mistake.now.substr(0, 100);
    EXPECT_LT(read(folder_ / "stderr").size(), 1000u) << mistake.now.substr(0, 100);
  }
}

}  // namespace
}  // namespace halfmark::bench
