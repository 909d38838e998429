// `--data` of the program: what a record says, what is refused, and that nothing is compared with other data.
#include "bench/run/data_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>

#include "bench/run/program_testing.h"
#include "reports/record/report.h"
#include "reports/record/shell.h"

namespace halfmark::bench {
namespace {

class DataOption : public ProcessTest {
 protected:
  static std::string bytes_of(const std::string& hexadecimal) {
    std::string bytes;
    for (size_t i = 0; i < hexadecimal.size(); i += 2)
      bytes += static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
    return bytes;
  }
  // 40 images for training and 20 for the test, of 4 x 4 pixels.
  void write_mnist(const std::string& folder, int salt = 0) const {
    std::filesystem::create_directories(folder_ / folder);
    for (const auto& [part, count] : {std::pair{"train", 40}, {"t10k", 20}}) {
      const auto start = [&, part = std::string(part)](const std::string& kind, const std::string& header) {
        std::ofstream out(folder_ / folder / (part + kind), std::ios::binary);
        out << header;
        return out;
      };
      const std::string images = std::string("\0\0\0", 3) + static_cast<char>(count), four = std::string("\0\0\0\4", 4);
      std::ofstream pixels = start("-images-idx3-ubyte", std::string("\0\0\x08\3", 4) + images + four + four);
      std::ofstream labels = start("-labels-idx1-ubyte", std::string("\0\0\x08\1", 4) + images);
      for (int n = 0; n < count; ++n) {
        labels << static_cast<char>(n % 10);
        for (int i = 0; i < 16; ++i) pixels << static_cast<char>((n % 10 * 25 + i * salt) % 256);
      }
    }
  }
  Record record_of(const std::string& file) const { return Report::load(folder_ / file).records.at(0); }
};

TEST_F(DataOption, ARecordSaysOnWhichDataItWasMeasuredAndRepeatsIt) {
  write_mnist("digits");
  const Result first = halfmark("run --data digits/ mlp/b8_i16_h24_o10 amp-fp16 training --no-probes -o a.json");
  ASSERT_EQ(first.code, 0) << first.err;
  const Record record = record_of("a.json");
  ASSERT_TRUE(record.data);
  EXPECT_EQ(record.data->kind, "mnist");
  EXPECT_EQ(record.data->name, "digits");
  EXPECT_EQ(record.data->training, 40);
  EXPECT_EQ(record.data->held_out, 20);
  EXPECT_EQ(find(record, "evaluation.samples")->value, 20) << "all of a small test part, none of them twice";
  EXPECT_GE(find(record, "data.batch")->value, 0);
  EXPECT_GE(find(record, "data.waiting")->value, 0);
  EXPECT_TRUE(record.repro.ends_with(" --data " + shell_word((folder_ / "digits/").string()))) << record.repro;
  // Its own command, and a process of its own, give the same bits.
  ASSERT_EQ(halfmark(record.repro.substr(record.repro.find(' ')) + " --no-probes -o b.json").code, 0);
  EXPECT_EQ(record_of("b.json").fingerprint, record.fingerprint);
  ASSERT_EQ(halfmark("run --data digits mlp/b8_i16_h24_o10 amp-fp16 training --isolate --no-probes -o c.json").code, 0);
  EXPECT_EQ(record_of("c.json").fingerprint, record.fingerprint);
  EXPECT_EQ(record_of("c.json").data, record.data);
}

TEST_F(DataOption, NoReportReplacesAFileOfTheUser) {
  write_mnist("digits");
  const std::string run = "run --data digits mlp/b8_i16_h24_o10 fp32 error --no-probes -o ";
  const Result within = halfmark(run + "digits/train-labels-idx1-ubyte");
  EXPECT_EQ(within.code, 2);
  EXPECT_TRUE(says(within.err, "would be overwritten")) << within.err;
  std::ofstream(folder_ / "notes.txt") << "mine";
  const Result notes = halfmark(run + "notes.txt");
  EXPECT_EQ(notes.code, 0) << notes.err;
  EXPECT_TRUE(says(notes.err, "the earlier notes.txt is kept as notes.txt.old")) << notes.err;
  EXPECT_EQ(read(folder_ / "notes.txt.old"), "mine");
  EXPECT_TRUE(Report::load(folder_ / "notes.txt").run.complete);
  ASSERT_EQ(halfmark(run + "notes.txt").code, 0) << "a complete report replaces one";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "notes.txt.old2"));
}

TEST_F(DataOption, TheGateDoesNotCompareOtherData) {
  write_mnist("digits"), write_mnist("other", 3);
  const std::string run = "run mlp/b8_i16_h24_o10 fp32 error --no-probes ";
  ASSERT_EQ(halfmark(run + "-o drawn.json").code, 0);
  ASSERT_EQ(halfmark(run + "--data digits -o digits.json").code, 0);
  ASSERT_EQ(halfmark(run + "--data other -o other.json").code, 0);
  EXPECT_FALSE(record_of("drawn.json").data);
  EXPECT_EQ(halfmark("gate digits.json digits.json").code, 0);
  for (const std::string base : {"drawn.json", "other.json"}) {
    const Result gate = halfmark("gate " + base + " digits.json");
    EXPECT_EQ(gate.code, 3) << "nothing is worse, and nothing is compared";
    EXPECT_TRUE(says(gate.out, "INCONCLUSIVE")) << gate.out;
    EXPECT_TRUE(says(gate.out, "was measured on other data than the base (data ")) << gate.out;
    EXPECT_TRUE(says(gate.out, "-> mnist " + record_of("digits.json").data->hash)) << gate.out;
    EXPECT_FALSE(says(gate.out, "other sizes")) << gate.out;
    EXPECT_EQ(says(gate.out, " --data " + (folder_ / "other").string()), base == "other.json")
        << "the command that measures what the base did: " << gate.out;
  }
}

TEST_F(DataOption, APictureThatIsBrokenEndsTheRunWithItsNameAndKeepsWhatIsFinished) {
  // 8 x 8 pixels of one grey, written by zlib and struct of Python.
  const std::string good = bytes_of(
      "89504e470d0a1a0a0000000d49484452000000080000000808020000004b6d29dc0000000f49444154789c6348c10118"
      "869604004e7b4b01e09cedf30000000049454e44ae426082");
  for (const std::string split : {"train", "val"})
    for (const std::string name : {"cat", "dog"}) {
      std::filesystem::create_directories(folder_ / "pets" / split / name);
      for (const char* number : {"1", "2"})
        std::ofstream(folder_ / "pets" / split / name / (std::string(number) + ".png"), std::ios::binary) << good;
    }
  const std::string run = "run --data pets resnet/b4_s8_n1_w2_o2 fp32 --device cpu --no-probes ";
  const Result whole = halfmark(run + "error training -o whole.json");
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::ofstream(folder_ / "pets/val/dog/2.png", std::ios::binary)
      << good.substr(0, 50);  // held out: read by the training alone
  const std::string file = "pets/val/dog/2.png: is no readable PNG: ";
  expect_complaint(run + "training -o a.json", file);
  EXPECT_TRUE(says(read(folder_ / "stderr"), "no case was finished and nothing is written"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.json"));
  expect_complaint(run + "training --isolate -o a.json", file);
  expect_complaint(run + "error training -o a.json", file);
  EXPECT_TRUE(says(read(folder_ / "stderr"), "the run ends after 1 of 2 cases, saved in a.json"))
      << read(folder_ / "stderr");
  const Report saved = Report::load(folder_ / "a.json");
  EXPECT_FALSE(saved.run.complete);
  ASSERT_EQ(saved.records.size(), 1u);
  EXPECT_EQ(saved.records[0].harness, "error");
  EXPECT_EQ(saved.records[0].status, Status::ok);
  // Shards of a run on files belong together.
  std::ofstream(folder_ / "pets/val/dog/2.png", std::ios::binary) << good;
  for (const char* part : {"1", "2"})
    ASSERT_EQ(halfmark(run + "error training -o " + part + ".json --shard " + part + "/2").code, 0);
  EXPECT_EQ(halfmark("merge 1.json 2.json -o both.json").code, 0) << read(folder_ / "stderr");
  std::ofstream(folder_ / "pets/val/dog/2.png", std::ios::binary) << good.substr(0, 50);
  // The rest of the run cannot be added to what was measured on the broken picture's folder.
  std::ofstream(folder_ / "pets/val/dog/2.png", std::ios::binary) << good;
  expect_complaint(run + "error training -o a.json --resume", "have changed since; start without --resume");
  std::ofstream(folder_ / "pets/train/cat/1.png", std::ios::binary) << good.substr(0, 50);
  expect_complaint("dump --data pets resnet/b4_s8_n1_w2_o2/cpu/fp32 -o tensors",
                   "pets/train/cat/1.png: is no readable PNG: ");
}

TEST_F(DataOption, WhatDoesNotFitIsOneLineBeforeAnythingIsMeasured) {
  write_mnist("digits");
  expect_complaint("run --data digits lenet5/b8_c1_s28 training",
                   "lenet5/b8_c1_s28: takes [1, 28, 28] and has 10 classes; digits has images [1, 4, 4] of 10 classes");
  expect_complaint("run --data digits mlp/b8_i64_h24_o10 training", "mlp/b8_i16_h24_o10 fits");
  expect_complaint("run --data digits linear/b4_i16_o8 error", "data of the kind 'normal' are always drawn");
  expect_complaint("run --data nowhere mlp/b8_i16_h24_o10", "nowhere: no such file or folder");
  expect_complaint("run --data . mlp/b8_i16_h24_o10", "these were looked for: MNIST");
  expect_complaint("dump --data digits mlp/b8_i64_h24_o10/cpu/fp32 -o t", "mlp/b8_i16_h24_o10 fits");
  std::ofstream(folder_ / "digits/train-labels-idx1-ubyte", std::ios::binary) << std::string("\0\0\x08\1\0\0", 6);
  expect_complaint("run --data digits mlp/b8_i16_h24_o10 training",
                   "digits/train-labels-idx1-ubyte: ends within its header");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
}

TEST_F(DataOption, TheVocabularyIsThatOfTheDataGiven) {
  std::string dna;
  for (int i = 0; i < 2000; ++i) dna += "acgt"[i * 7 % 11 % 4];
  std::ofstream(folder_ / "dna.txt") << dna;
  const std::string end = " fp32 error --no-probes ";
  const Result own = halfmark("run --data dna.txt gpt/b2_t8_n1_h2_d8_v4" + end);
  EXPECT_EQ(own.code, 0) << own.err;
  expect_complaint("run --data dna.txt gpt/b2_t8_n1_h2_d8_v2" + end, "gpt/b2_t8_n1_h2_d8_v4 fits");
  expect_complaint("run gpt/b2_t8_n1_h2_d8_v4" + end,
                   "gpt/b2_t8_n1_h2_d8_v4: v (vocabulary) is 4, drawn text needs 27 or more");
  expect_complaint("dump gpt/b2_t8_n1_h2_d8_v26/cpu/fp32 -o t", "v (vocabulary) is 26, drawn text needs 27 or more");
  expect_complaint("run lstm_classifier/b2_t8_n1_e4_h4_v40_o4 fp32 error",
                   "v (vocabulary) is 40, drawn sequences need 64 or more");
  // A model of a file.
  ASSERT_EQ(halfmark("list subjects --json gpt/b2_t8_n1_h2_d8_v4 > own.json").code, 0);
  const Result model = halfmark("run --model own.json --data dna.txt" + end);
  EXPECT_EQ(model.code, 0) << model.err;
  expect_complaint("run --model own.json" + end, "my_gpt/b2: \"classes\" is 4, drawn text needs 27 or more");
}

TEST_F(DataOption, TheDataAreNoPartOfAnId) {
  write_mnist("digits");
  const std::string run = "run mlp/b8_i16_h24_o10 fp32 error --dry-run ";
  EXPECT_EQ(halfmark(run + "--data digits").out, halfmark(run).out);
}

TEST_F(DataOption, DumpWritesTheSamplesOfTheFiles) {
  write_mnist("digits");
  ASSERT_EQ(halfmark("dump --data digits mlp/b8_i16_h24_o10/cpu/fp64 -o tensors").code, 0);
  // Every pixel of an image of label n is 25 n. The mean is 112.5 and the deviation 25 sqrt(8.25), of 0, 25, ..., 225.
  const auto numbers = [&](const std::string& name) {
    const std::string text = read(folder_ / "tensors" / name);
    return text.substr(text.find('\n') + 1);
  };
  const std::string x = numbers("step0.input.npy"), labels = numbers("step0.target.npy");
  ASSERT_EQ(x.size(), 8 * 16 * sizeof(double));
  ASSERT_EQ(labels.size(), 8 * sizeof(int32_t));
  for (size_t n = 0; n < 8; ++n) {
    double pixel = 0;
    int32_t label = -1;
    std::memcpy(&pixel, x.data() + (16 * n + 5) * sizeof pixel, sizeof pixel);
    std::memcpy(&label, labels.data() + n * sizeof label, sizeof label);
    EXPECT_NEAR(pixel, (25 * label - 112.5) / (25 * std::sqrt(8.25)), 1e-12);
  }
}

}  // namespace
}  // namespace halfmark::bench
