// End-to-end tests of the program: exit codes, one error line per mistake, a smoke run whose report is valid.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/run/performance.h"
#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"
#include "reports/record/file.h"
#include "reports/record/journal.h"
#include "reports/record/paths_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

const std::string kSource = test_folders::source();

class ProgramTest : public ProcessTest {};
using SlowProgramTest = ProgramTest;

TEST_F(ProgramTest, RefusesMistakesWithOneLineAndExitCode2) {
  expect_complaint("", "a command is needed");
  expect_complaint("nonsense", "unknown command 'nonsense'");
  expect_complaint("show", "report");
  expect_complaint("gate base.json", "missing: new (report to judge); halfmark gate --help says more");
  expect_complaint("run nonsense", "nonsense");
  expect_complaint("run --nonsense", "unknown option --nonsense (halfmark run --help lists the options)");
  expect_complaint("run --devic cpu", "unknown option --devic; did you mean --device?");
  expect_complaint("run --devic=cpu", "unknown option --devic; did you mean --device?");
  expect_complaint("run --device", "--device needs a value (halfmark run --help");
  expect_complaint("run --suite smoke --suite quick", "--suite is given more than once");
  expect_complaint("run --seed x", "(halfmark run --help lists the options)");
  expect_complaint("show a.json --layer", "did you mean --layers?");
  expect_complaint("run cuda:9", "cuda:9");
  expect_complaint("run --device cuda:9", "cuda:9");
  expect_complaint("run --suite huge", "huge");
  expect_complaint("run --policy fp17", "fp16");
  expect_complaint("run --policy fp17", "more: halfmark list policies");
  expect_complaint("run --harness erorr", "error");
  expect_complaint("run --harness erorr", "more: halfmark list harnesses");
  for (const char* list : {"a,,b", ",a", "a,", ","})
    for (const char* option :
         {"run --policy", "run --device", "run --harness", "history . --metric", "ab a b --device", "probe --types"})
      expect_complaint(fmt::format("{} {}", option, list), fmt::format("'{}' has an empty element", list));
  expect_complaint("run --case linear", "id is");
  expect_complaint("run --shard 3/2", "--shard");
  expect_complaint("probe --shape 32x32", "--shape");
  expect_complaint("probe --types f16", "f16>f32");
  expect_complaint("probe --device cpu --instruction all", "cpu has no matrix instructions; leave --instruction out");
  expect_complaint("probe --device sim:volta --instruction wgmma.k16", "sim:volta has no instruction wgmma.k16");
  expect_complaint("probe --device sim:volta --instruction all --types 'e4m3>f32'",
                   "sim:volta has no matrix instruction that takes e4m3>f32");
  expect_complaint("probe --device sim:hopper --vectors nowhere.csv", "nowhere.csv");
  expect_complaint("run --timeout 3", "--isolate");
  expect_complaint("run --dry-run --resume=1", "--resume takes no value");
  for (const char* other : {"mlp", "--policy fp32", "--harness error", "--device cpu", "--suite full"})
    expect_complaint(std::string("run --dry-run --case mlp/b8_i16_h24_o10/cpu/fp16/error ") + other, "--case");
  expect_complaint("run --isolate --timeout -3", "'-3' is not a positive number");
  expect_complaint("list nonsense", "nonsense");
}

TEST_F(ProgramTest, RefusesFilesThatAreNotReports) {
  std::ofstream(folder_ / "nonsense.json") << "this is no report\n";
  const std::string fixtures = kSource + "/reports/fixtures/";
  for (const char* command : {"show ", "compare "}) {
    expect_complaint(command + std::string("nonsense.json"), "nonsense.json");
    expect_complaint(command + std::string("absent.json"), "absent.json");
    expect_complaint(command + quoted(fixtures + "bad-truncated.json"), "bad-truncated.json");
    expect_complaint(command + quoted(fixtures + "bad-major.json"), "bad-major.json");
  }
}

// Kernels for SSE3 are its choice on processors that it does not know; they take several times as long.
TEST_F(ProgramTest, LetsOpenBlasUseTheInstructionsOfTheProcessor) {
  ASSERT_EQ(shell("unset OPENBLAS_CORETYPE OMP_WAIT_POLICY GOMP_SPINCOUNT; \"$HALFMARK\" run linear/b2_i3_o4 fp32 "
                  "error -o a.json")
                .code,
            0);
  const nlohmann::ordered_json environment = Report::load(folder_ / "a.json").environment;
  if (environment["cpu"]["flags"].get<std::string>().find("avx2") == std::string::npos)
    GTEST_SKIP() << "this processor has no AVX2";
  EXPECT_EQ(environment["libraries"]["openblas"].get<std::string>().find("Prescott"), std::string::npos);
}

TEST_F(ProgramTest, LeavesTheChoiceOfOpenBlasToItsVariable) {
  ASSERT_EQ(shell("OPENBLAS_CORETYPE=Prescott \"$HALFMARK\" run linear/b2_i3_o4 fp32 error -o a.json").code, 0);
  const nlohmann::ordered_json environment = Report::load(folder_ / "a.json").environment;
  EXPECT_NE(environment["libraries"]["openblas"].get<std::string>().find("Prescott"), std::string::npos);
  EXPECT_EQ(environment["variables"]["OPENBLAS_CORETYPE"], "Prescott");
}

TEST_F(ProgramTest, NeverWritesOverWhatItReads) {
  std::filesystem::create_directory(folder_ / "store");
  const std::filesystem::path one = folder_ / "store" / "one.json";
  std::filesystem::copy_file(kSource + "/reports/fixtures/report-1.1.json", one);
  std::filesystem::create_symlink(one, folder_ / "link.json");
  const std::string before = read(one);
  for (const char* output : {"store/one.json", "./store/../store/one.json", "link.json"}) {
    const std::string name(output);
    expect_complaint("export store/one.json --to csv -o " + name, "would be overwritten");
    expect_complaint("merge store/one.json -o " + name, "would be overwritten");
    for (const char* option : {"--csv ", "--json ", "--junit ", "--markdown "})
      expect_complaint("gate store/one.json link.json " + (option + name), "would be overwritten");
  }
  expect_complaint("history store --json store/new.json", "lies in the folder that is read");
  expect_complaint("history store --json store/one.json", "lies in the folder that is read");
  EXPECT_EQ(read(one), before);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "store" / "new.json"));
}

TEST_F(ProgramTest, ChecksTheOutputBeforeItMeasures) {
  expect_complaint("run linear error -o no/such/folder/report.json", "no/such/folder");
  expect_complaint("run linear error -o .", "directory");
  for (const char* command : {"run linear error", "merge 1.json", "export 1.json --to csv", "probe"})
    expect_complaint(std::string(command) + " -o -", "'-' is not the name of a file");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "-"));
}

TEST_F(ProgramTest, ListsItsTables) {
  for (const char* what : {"", "families", "subjects", "policies", "devices", "harnesses", "kernels"}) {
    const Result text = halfmark(std::string("list ") + what);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_FALSE(text.out.empty());
    const Result json = halfmark(std::string("list --json ") + what);
    EXPECT_EQ(json.code, 0) << json.err;
    EXPECT_FALSE(nlohmann::json::parse(json.out).empty());
  }
  for (const auto& subject : nlohmann::json::parse(halfmark("list subjects --json").out)) {
    EXPECT_TRUE(subject["parameters"].is_number_integer()) << subject;
    EXPECT_TRUE(subject["forward_flops"].is_number_integer()) << subject;
  }
  EXPECT_EQ(halfmark("--help").code, 0);
  EXPECT_EQ(halfmark("run --help").code, 0);
  EXPECT_EQ(halfmark("--version").code, 0);
}

TEST_F(ProgramTest, AMessageNamesWhatWasTyped) {
  expect_complaint("run MLP/b8_i16_h24_o10 error", "did you mean mlp/b8_i16_h24_o10?");
  expect_complaint("run MLP error", "did you mean mlp?");
  expect_complaint("run mpl", "unknown word 'mpl'; did you mean mlp or ");
  expect_complaint("list subjects MLP/b2_i3_h4_o5", "did you mean mlp?");
  expect_complaint("list subjects mlp", "mlp needs sizes, as mlp/b");
  expect_complaint("list subjects mlp", "its letters: b batch, i ");
  expect_complaint("list subjects convnt", "unknown subject 'convnt'; did you mean convnet or ");
  EXPECT_LT(read(folder_ / "stderr").size(), 350u) << "the list is shortened";
  expect_complaint("run convnt/b16_c3_s16_w16",
                   "unknown word 'convnt/b16_c3_s16_w16'; did you mean convnet/b16_c3_s16_w16");
  expect_complaint("dump mlp/b8_i16_h24_o10/cpu/fp32 -o none/d6", "halfmark: none/d6: cannot be created: No such");
  std::ofstream(folder_ / "short.txt") << "ten chars.";
  std::ofstream(folder_ / "mk.py") << "pass";
  std::filesystem::create_directory(folder_ / "texts");
  std::filesystem::rename(folder_ / "short.txt", folder_ / "texts/short.txt");
  expect_complaint("run --data texts/short.txt gpt/b2_t8_n1_h2_d8_v27 error",
                   "halfmark: texts/short.txt: its last tenth has 1 character, and");
  expect_complaint("run --data mk.py convnet/b4_c1_s8_w4 error",
                   "mk.py: is a file; for data of the kind 'images' these were");
  const std::string dump = "dump mlp/b8_i16_h24_o10/cpu/amp-fp16 -o tensors ";
  expect_complaint(dump + "--training rate=-1", "--training rate=-1: rate is -1, not in 0 ... 1e+06");
  expect_complaint(dump + "--training optimiser=adam", "--training optimiser=adam: ");
  expect_complaint(dump + "--training optimizer=adamw,nesterov=true",
                   "--training optimizer=adamw,nesterov=true: adamw has no nesterov");
  expect_complaint(dump + "--training beta1=0.5", "--training beta1=0.5: sgd has no beta1");
  EXPECT_EQ(halfmark("dump mlp/b8_i16_h24_o10/cpu/fp32 -o own --training optimizer=adam,rate=0.01,beta1=0.5").code, 0);
  expect_complaint(dump + "--overflows 012", "--overflows 012: has characters other than 0 and 1");
  // Before anything runs: no case fails, and nothing is written.
  expect_complaint("run lenet5/b2_c1_s8", "lenet5/b2_c1_s8: layer conv2 (conv2d): the kernel reaches over 5 rows");
  expect_complaint("run resnet/b1_s1 throughput", "layer bn1 (batchnorm2d): in training needs more than one value");
  std::ofstream(folder_ / "sizes.csv") << "subject,b,c,s\nlenet5,2,1,28\nlenet5,2,1,8\n";
  expect_complaint("run --shapes sizes.csv error", "sizes.csv:3: lenet5/b2_c1_s8: layer conv2 (conv2d)");
  expect_complaint("list subjects lenet5/b2_c1_s8", "layer conv2 (conv2d)");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
}

TEST_F(ProgramTest, RunsASubjectAtATypedSize) {
  EXPECT_EQ(halfmark("run conv2d/k3x1_b1_c2_o3_s5x4_t1 fp32 error --device cpu -o typed.json").code, 0);
  const Report report = Report::load(folder_ / "typed.json");
  ASSERT_EQ(report.records.size(), 1u);
  EXPECT_EQ(report.records[0].id, "conv2d/b1_c2_o3_s5x4_k3x1/cpu/fp32/error");
  EXPECT_EQ(halfmark("run --case " + report.records[0].id + " -o again.json").code, 0);
  EXPECT_EQ(Report::load(folder_ / "again.json").records[0].fingerprint, report.records[0].fingerprint);
  expect_complaint("run conv2d/b1_c3_o4_s8_k3_g2 error", "conv2d/b1_c3_o4_s8_k3_g2: 2 groups do not divide 3 input");
  write_file(folder_ / "sizes.csv", "subject,b,i,o\nlinear,2,3,4\n");
  EXPECT_EQ(halfmark("run --shapes sizes.csv fp32 error -o sizes.json").code, 0);
  EXPECT_EQ(Report::load(folder_ / "sizes.json").records.at(0).subject, "linear/b2_i3_o4");
  expect_complaint("run --shapes sizes.csv fp32 error -o sizes.csv", "would be overwritten");
  expect_complaint("run --shapes sizes.csv mlp error", "--shapes restricts the subjects to its list");
  expect_complaint("run conv2d/b1_c3_o4_s2_k3_p0 error", "the padded image has 2");
}

TEST_F(ProgramTest, SmokeSuitePassesAndValidates) {
  const Result result = halfmark("run --suite smoke --device cpu");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.err.empty()) << result.err;
  const Report report = Report::load(folder_ / "report.json");
  EXPECT_FALSE(report.records.empty());
  for (const Record& record : report.records)
    EXPECT_EQ(record.status, Status::ok) << record.id << ": " << record.reason;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json.journal"));
  EXPECT_EQ(halfmark("show report.json").code, 0);
  EXPECT_EQ(halfmark("compare report.json report.json").code, 0);
  const std::string validator = kSource + "/scripts/validate_report.py";
  if (std::filesystem::exists(validator) && std::string(HALFMARK_PYTHON) != "") {
    const std::string command = std::string(HALFMARK_PYTHON) + " " + quoted(validator) + " " +
                                (folder_ / "report.json").string() + " > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
}

TEST_F(ProgramTest, EveryRecordCanBeRunAloneWithTheSameBits) {
  ASSERT_EQ(halfmark("run --suite smoke --device cpu mlp amp-fp16 --seed 7 -o all.json").code, 0);
  const Report all = Report::load(folder_ / "all.json");
  ASSERT_FALSE(all.records.empty());
  for (const Record& record : all.records) {
    ASSERT_TRUE(record.repro.starts_with("halfmark run "));
    ASSERT_EQ(halfmark(record.repro.substr(9) + " -o one.json").code, 0);
    EXPECT_EQ(Report::load(folder_ / "one.json").records.at(0).fingerprint, record.fingerprint) << record.id;
  }
}

TEST_F(ProgramTest, IsolatedCasesGiveTheSameBits) {
  ASSERT_EQ(halfmark("run --suite smoke --device cpu linear fp16 -o here.json").code, 0);
  ASSERT_EQ(halfmark("run --suite smoke --device cpu linear fp16 -o there.json --isolate --timeout 60").code, 0);
  const Report here = Report::load(folder_ / "here.json"), there = Report::load(folder_ / "there.json");
  ASSERT_EQ(here.records.size(), there.records.size());
  for (size_t i = 0; i < here.records.size(); ++i) EXPECT_EQ(here.records[i].fingerprint, there.records[i].fingerprint);
}

TEST_F(ProgramTest, KillsACaseThatTakesTooLong) {
  const Result result =
      halfmark("run --case mlp/b32_i64_h128_o10/cpu/fp16/training/steps=400 --isolate --timeout 0.02");
  EXPECT_EQ(result.code, 1);
  const Report report = Report::load(folder_ / "report.json");
  EXPECT_EQ(report.records.at(0).status, Status::failed);
  EXPECT_NE(report.records.at(0).reason.find("killed after"), std::string::npos);
}

// Without --growth-interval the scale grows as the policy's scaler says.
TEST_F(ProgramTest, DumpsTheScalesOfThePolicysOwnScaler) {
  const auto scales_with = [&](const std::string& folder, const std::string& option) {
    EXPECT_EQ(
        halfmark("dump mlp/b8_i16_h24_o10/cpu/amp-fp16+scaler=torch:1024:3 --overflows 0000100 -o " + folder + option)
            .code,
        0);
    const auto dump = nlohmann::json::parse(read(folder_ / folder / "dump.json"));
    std::vector<double> scales = {dump["overflows"]["interval"]};
    for (const auto& step : dump["steps"]) scales.push_back(step["scale"]);
    return scales;
  };
  EXPECT_EQ(scales_with("own", ""), (std::vector<double>{3, 1024, 1024, 1024, 2048, 2048, 1024, 1024}));
  EXPECT_EQ(scales_with("given", " --growth-interval 2"),
            (std::vector<double>{2, 1024, 1024, 2048, 2048, 4096, 2048, 2048}));
}

TEST_F(ProgramTest, ResumesFromItsJournal) {
  ASSERT_EQ(halfmark("run --suite smoke --device cpu linear -o whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  ASSERT_GT(whole.records.size(), 3u);
  {
    Report header = whole;
    header.records.clear();
    Journal journal = Journal::create(journal_of(folder_ / "cut.json"), header);
    Record marked = whole.records[0];
    marked.numerics = "from the journal";
    journal.append(marked);
  }
  ASSERT_EQ(halfmark("run --suite smoke --device cpu linear -o cut.json --resume").code, 0);
  const Report resumed = Report::load(folder_ / "cut.json");
  ASSERT_EQ(resumed.records.size(), whole.records.size());
  EXPECT_EQ(resumed.records[0].numerics, "from the journal");
  for (size_t i = 0; i < whole.records.size(); ++i)
    EXPECT_EQ(resumed.records[i].fingerprint, whole.records[i].fingerprint);
}

// Else the report would have a new checksum for a number that nothing measured.
TEST_F(ProgramTest, MeasuresAgainWhatWasChangedInItsJournal) {
  const std::string run = "run --device cpu --policy fp32,fp16 linear/b8_i8_o8 error --no-probes -o ";
  ASSERT_EQ(halfmark(run + "whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  {
    Report header = whole;
    header.records.clear();
    Journal::create(journal_of(folder_ / "cut.json"), header).append(whole.records[0]);
  }
  std::string text = read(folder_ / "cut.json.journal");
  const std::string fingerprint = whole.records[0].fingerprint;
  ASSERT_NE(text.find(fingerprint), text.npos);
  std::ofstream(folder_ / "cut.json.journal") << text.replace(text.find(fingerprint), fingerprint.size(), "0123");
  const Result resumed = halfmark(run + "cut.json --resume");
  EXPECT_EQ(resumed.code, 0);
  EXPECT_EQ(resumed.err,
            "halfmark: cut.json.journal: 1 record changed after it was written (checksum wrong or missing): measured "
            "again\n");
  EXPECT_EQ(Report::load(folder_ / "cut.json").records[0].fingerprint, fingerprint);
}

TEST_F(ProgramTest, ShardsTogetherAreTheWholePlan) {
  const std::string all = halfmark("run --suite smoke --device cpu --dry-run").out;
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  long sum = 0;
  for (const char* shard : {"1/3", "2/3", "3/3"})
    sum += lines(halfmark(std::string("run --suite smoke --device cpu --dry-run --shard ") + shard).out);
  EXPECT_EQ(sum, lines(all));
}

TEST_F(ProgramTest, AnswersVectorsFromStandardInput) {
  std::ofstream(folder_ / "in.csv") << "x,y,z\r\n3C01,3BFE,6801\r\n7C00,0000,7E00\r\n";
  const Result sums = halfmark("arithmetic --format fp16 --operation mulAdd --rounding near_even < in.csv");
  EXPECT_EQ(sums.code, 0) << sums.err;
  EXPECT_EQ(sums.out, "result,flags\n6801,1\n7e00,10\n");
  std::ofstream(folder_ / "wide.csv") << "x\n43e80001\n";
  EXPECT_EQ(halfmark("convert --from f32 --to e4m3 < wide.csv").out, "result,flags\n7f,5\n");
  EXPECT_EQ(halfmark("convert --from f32 --to e4m3 --overflow saturate < wide.csv").out, "result,flags\n7e,5\n");
  EXPECT_EQ(halfmark("convert --from f32 --to e4m3 --rounding toward_zero < wide.csv").out, "result,flags\n7e,1\n");
}

TEST_F(ProgramTest, RefusesInvalidVectors) {
  std::ofstream(folder_ / "bad.csv") << "x,y\n3c00,3c00\n3c00,zz\n";
  expect_complaint("arithmetic --operation add < bad.csv", "line 3, column 'y': 'zz' is not 4 hex digits");
  expect_complaint("arithmetic --operation mulAdd < bad.csv", "no column 'z'");
  expect_complaint("arithmetic --operation power < bad.csv", "add, sub, mul, div, mulAdd, sqrt");
  expect_complaint("arithmetic --operation add --format fp32 < bad.csv", "--format fp32");
  expect_complaint("convert --from f16 --to e4m3 --overflow infinity < bad.csv", "e4m3 has no infinity");
  expect_complaint("convert --from fp16 --to e4m3 < bad.csv", "unknown type 'fp16'");
  expect_complaint("convert --from f16 --to e4m3 < /dev/null", "the input is empty");
  if (std::filesystem::exists("/dev/full")) {
    std::ofstream(folder_ / "in.csv") << "x\n3c00\n";
    expect_complaint("convert --from f16 --to e4m3 < in.csv > /dev/full", "No space left on device");
    expect_complaint("list > /dev/full", "standard output cannot be written: No space left on device");
    expect_complaint("list kernels --json > /dev/full", "standard output cannot be written: No space left on device");
  }
}

// A time of emulated arithmetic must never be presented as a valid timing.
TEST_F(SlowProgramTest, NoTimedRecordOfEmulatedArithmeticIsOk) {
  ASSERT_EQ(halfmark("run --suite smoke --device cpu --harness throughput,error linear fp32 fp16 amp-bf16").code, 0);
  long timed = 0;
  for (const Record& record : Report::load(folder_ / "report.json").records) {
    const bool emulated = std::any_of(record.kernels.begin(), record.kernels.end(), [](const KernelUse& use) {
      return use.speed == "emulated" && is_timed_phase(use.phase);
    });
    const bool has_times = std::any_of(
        record.measurements.begin(), record.measurements.end(),
        [](const Measurement& m) { return m.metric.starts_with("time.") || m.metric.starts_with("throughput."); });
    timed += has_times;
    if (has_times) {
      // On a busy machine, a valid timing may also be suspect, for another reason.
      const bool says_so = record.reason.find("emulated") != std::string::npos;
      EXPECT_EQ(record.status == Status::suspect && says_so, emulated) << record.id << ": " << record.reason;
    }
    EXPECT_EQ(record.status == Status::suspect, !record.reason.empty()) << record.id;
  }
  EXPECT_GT(timed, 0);
}

TEST_F(ProgramTest, Bf16IsSuspectOnACpuWithoutBf16Units) {
#if HALFMARK_ONEDNN
  // oneDNN can limit itself to the instructions of an older CPU.
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  const Result result = halfmark("run --suite smoke --device cpu linear/b4_i16_o8 bf16 fp32 --harness throughput");
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<Record> records = Report::load(folder_ / "report.json").records;
  EXPECT_EQ(records.size(), 2u);
  for (const Record& record : records) {
    const bool bf16 = record.policy == "bf16";
    EXPECT_EQ(record.reason.find("matmul bf16,bf16->bf16 by upcast") != std::string::npos, bf16) << record.reason;
    EXPECT_EQ(record.reason.find("emulated") != std::string::npos, bf16) << record.reason;
    for (const KernelUse& use : record.kernels) {
      if (use.operation != "matmul") continue;
      const bool says_why = std::any_of(use.refusals.begin(), use.refusals.end(), [](const std::string& refusal) {
        return refusal.find("no bf16 units on this CPU") != std::string::npos;
      });
      EXPECT_EQ(says_why, bf16) << record.id;
    }
  }
#else
  GTEST_SKIP() << "built without oneDNN: no CPU multiplies bf16 here";
#endif
}

TEST_F(ProgramTest, ProbeNamesTheRowThatAnswered) {
  const auto row_of = [&](const std::string& types) {
    const Result result = halfmark("probe --device sim:hopper --replay 100 --types '" + types + "'");
    EXPECT_EQ(result.code, 0) << result.err;
    const size_t at = result.out.find("kernel row");
    return at == std::string::npos ? result.out : result.out.substr(at, result.out.find('\n', at) - at);
  };
  EXPECT_NE(row_of("f16>f32").find(" tensor-core "), std::string::npos);
  // The fp8 instruction keeps too few bits for a product that requires full fp32 accumulation.
  EXPECT_NE(row_of("e4m3>f32").find(" reference "), std::string::npos);
  EXPECT_NE(row_of("e4m3>f32+fast").find(" tensor-core "), std::string::npos);
}

TEST_F(ProgramTest, SimulatedDevicesRefuseToBeTimed) {
  const Result skipped = halfmark("run --suite smoke --device sim:hopper --harness throughput linear fp16");
  EXPECT_EQ(skipped.code, 2);
  EXPECT_NE(skipped.err.find("nothing was measured: "), std::string::npos) << skipped.err;
  for (const Record& record : Report::load(folder_ / "report.json").records) {
    EXPECT_EQ(record.status, Status::skipped);
    EXPECT_EQ(record.numerics, "instruction-exact");
    EXPECT_TRUE(record.measurements.empty());
  }
}

}  // namespace
}  // namespace halfmark::bench
