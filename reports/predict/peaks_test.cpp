// The table of published peaks: every number has a source, and agrees with what the GPU is built of.
#include "reports/predict/peaks.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/paths_testing.h"

namespace halfmark::reports {
namespace {

using Json = nlohmann::ordered_json;

Json shipped_peaks() {
  const std::string path = test_folders::source() + "/reports/predict/peaks.json";
  return parse_json(read_file(path), path);
}

std::string peaks_complaint(const Json& json) {
  try {
    published_gpus_from(json, "peaks.json");
  } catch (const ReportError& error) {
    return error.what();
  }
  return {};
}

const PublishedGpu& published_gpu(const std::string& name) { return *published_gpus_named({name}).at(0); }

TEST(Peaks, HaveASourceForEachNumber) {
  ASSERT_EQ(peaks_complaint(shipped_peaks()), "");
  const Json json = shipped_peaks();
  size_t numbers = 0;
  const auto check = [&](const std::string& path) {
    const Json::json_pointer place(path);
    for (const char* field : {"value", "source", "row"}) {
      Json without = json;
      without[place].erase(field);
      EXPECT_NE(peaks_complaint(without).find(field), std::string::npos) << path;
    }
    Json other = json;
    other[place]["source"] = "somebody";
    EXPECT_NE(peaks_complaint(other).find("'somebody', which is not in the list"), std::string::npos) << path;
    other = json;
    other[place]["value"] = 0;
    EXPECT_NE(peaks_complaint(other).find("is not positive"), std::string::npos) << path;
    ++numbers;
  };
  for (size_t i = 0; i < json["gpus"].size(); ++i) {
    const std::string gpu = "/gpus/" + std::to_string(i);
    check(gpu + "/memory"), check(gpu + "/bandwidth");
    for (const auto& [type, figure] : json["gpus"][i]["flops"].items()) check(gpu + "/flops/" + type);
  }
  EXPECT_GT(numbers, 60u);
  for (const PublishedGpu& gpu : published_gpus()) EXPECT_FALSE(gpu.devices.empty()) << gpu.name;
}

TEST(Peaks, RefuseWhatIsWrong) {
  Json json = shipped_peaks();
  json["gpus"][0]["flops"]["f15"] = json["gpus"][0]["flops"]["f16"];
  EXPECT_NE(peaks_complaint(json).find("'f15' is no type of operands"), std::string::npos);
  json = shipped_peaks();
  json["gpus"][0]["without"].push_back("f16");
  EXPECT_NE(peaks_complaint(json).find("has a peak too"), std::string::npos);
  json = shipped_peaks();
  json["gpus"][0]["bandwith"] = 1;
  EXPECT_NE(peaks_complaint(json), "");
}

// What a GPU is built of gives its dense peak: multiprocessors * clock * FLOP of one in a clock; and its bandwidth: bits of
// the bus * bits a second of one line / 8. From the tables that peaks.json cites; a figure with sparsity is off by a factor
// of 2, one with fp16 sums likewise on a consumer card.
struct Build {
  const char* name;
  double multiprocessors, clock, f32, f16;  // FLOP of a multiprocessor in a clock: 2 * fp32 cores; f16 with fp32 sums
  double bus, line;
};
constexpr Build kBuilds[] = {
    {"v100", 80, 1530e6, 128, 1024, 4096, 1.755e9},      {"t4", 40, 1590e6, 128, 1024, 256, 10e9},
    {"rtx2080ti", 68, 1635e6, 128, 512, 352, 14e9},      {"a100", 108, 1410e6, 128, 2048, 5120, 3.186e9},
    {"a100-40gb", 108, 1410e6, 128, 2048, 5120, 2.43e9}, {"rtx3090", 82, 1695e6, 256, 512, 384, 19.5e9},
    {"l40s", 142, 2520e6, 256, 1024, 384, 18e9},         {"rtx4090", 128, 2520e6, 256, 512, 384, 21e9},
    {"h100", 132, 1830e6, 0, 4096, 5120, 5.238e9},       {"rtx5090", 170, 2407e6, 256, 512, 512, 28e9}};

TEST(Peaks, AgreeWithWhatTheGpusAreBuiltOf) {
  for (const Build& build : kBuilds) {
    const PublishedGpu& gpu = published_gpu(build.name);
    const double clocks = build.multiprocessors * build.clock;
    EXPECT_NEAR(gpu.flops.at("f16").value / (clocks * build.f16), 1, 0.013) << build.name;
    EXPECT_NEAR(gpu.bandwidth.value / (build.bus * build.line / 8), 1, 0.005) << build.name;
    if (build.f32 > 0) {  // H100 runs fp32 at another clock than its tensor cores
      EXPECT_NEAR(gpu.flops.at("f32").value / (clocks * build.f32), 1, 0.007) << build.name;
    }
  }
  EXPECT_NEAR(published_gpu("h100").flops.at("f32").value / (132 * 1980e6 * 256), 1, 0.007);
  // B200 has two clocks as well.
  EXPECT_NEAR(published_gpu("b200").flops.at("f32").value / (148 * 1980e6 * 256), 1, 0.007);
  EXPECT_NEAR(published_gpu("b200").flops.at("f16").value / (148 * 1860e6 * 8192), 1, 0.013);
  EXPECT_NEAR(published_gpu("h200").bandwidth.value / published_gpu("h100").bandwidth.value, 1.43, 0.01);
}

// Of every GPU with these types: f16 is twice tf32, bf16 is f16, fp8 twice f16, fp4 twice fp8. The tolerance is that of figures
// with two digits.
TEST(Peaks, HaveTheRatiosOfTheArchitectures) {
  for (const PublishedGpu& gpu : published_gpus()) {
    const auto ratio = [&](const char* over, const char* under) {
      const auto a = gpu.flops.find(over), b = gpu.flops.find(under);
      return a == gpu.flops.end() || b == gpu.flops.end() ? std::optional<double>() : a->second.value / b->second.value;
    };
    for (const auto& [over, under] : {std::pair("f16", "tf32"), std::pair("fp8", "f16")})
      if (const auto found = ratio(over, under)) {
        EXPECT_NEAR(*found, 2, 0.05) << gpu.name << " " << over;
      }
    if (const auto found = ratio("bf16", "f16")) {
      EXPECT_EQ(*found, 1) << gpu.name;
    }
    if (const auto found = ratio("fp4", "fp8")) {
      EXPECT_EQ(*found, 2) << gpu.name;
    }
    const bool is_consumer = gpu.name.starts_with("rtx");
    if (const auto found = ratio("f16-sum16", "f16")) {
      EXPECT_NEAR(*found, is_consumer ? 2 : 1, 0.001) << gpu.name;
    }
    EXPECT_GE(gpu.flops.at("f16").value / gpu.flops.at("f32").value, is_consumer ? 1.99 : 3.9) << gpu.name;
  }
  for (const char* type : {"tf32", "f16", "bf16", "fp8"})
    EXPECT_EQ(published_gpu("h100").flops.at(type).value, published_gpu("h200").flops.at(type).value) << "one chip";
}

TEST(Peaks, AreFoundByNameByArchitectureAndBySimulatedDevice) {
  const auto names_of = [](const std::vector<std::string>& names) {
    std::string text;
    for (const PublishedGpu* gpu : published_gpus_named(names)) text += gpu->name + " ";
    return text;
  };
  EXPECT_EQ(names_of({"h100"}), "h100 ");
  EXPECT_EQ(names_of({"hopper"}), "h100 h200 ");
  EXPECT_EQ(names_of({"sim:hopper", "h200", "v100"}), "v100 h100 h200 ");
  EXPECT_EQ(names_of({}), "");
  for (const std::string& name : names_of_published_gpus()) EXPECT_NE(names_of({name}), "") << name;
}

}  // namespace
}  // namespace halfmark::reports
