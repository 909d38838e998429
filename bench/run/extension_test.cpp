// Which extensions are refused. The accepted one is tested by bench/package_example: a process is extended once.
#include "bench/run/extension.h"
#include "bench/run/program_name.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/run/known_names.h"
#include "kernels/number/error.h"

namespace halfmark::bench {
namespace {

Subject good_subject() {
  return {.name = "own",
          .sizes = "b2_i4",
          .input = {2, 4},
          .data = DataKind::normal,
          .classes = 0,
          .make = [](const Init&, const Settings&) { return relu("relu"); }};
}

const std::vector<MetricRow> kOwnMetrics = {{"own.metric", "1", Better::lower, Kind::bounded, "zero"}};

Harness good_harness() {
  return {.name = "ownharness",
          .about = "nothing",
          .axes = {{"mode", {"a", "b"}}},
          .metrics = kOwnMetrics,
          .measure = [](const TrialSpec&) { return Findings(); }};
}

// Expects that the extension is refused with these words and that the tables stay as they are.
void expect_refused(const std::function<void(Extension&)>& spoil, const std::string& words) {
  Extension one{.name = "mine", .version = "1", .subjects = {good_subject()}, .harnesses = {good_harness()}};
  spoil(one);
  const size_t subjects_before = subjects().size(), harnesses_before = all_harnesses().size();
  try {
    extend(one);
    ADD_FAILURE() << "accepted; expected: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
  EXPECT_EQ(subjects().size(), subjects_before) << words;
  EXPECT_EQ(all_harnesses().size(), harnesses_before) << words;
  EXPECT_EQ(program_name(), "halfmark");
}

TEST(Extension, RefusesNamesThatAnIdCannotHold) {
  for (const char* name : {"", "two words", "a/b", "a=b", "*", "naïve"}) {
    expect_refused([&](Extension& e) { e.name = name; }, "extension: program '" + std::string(name) + "'");
    expect_refused([&](Extension& e) { e.subjects[0].name = name; }, "extension: subject '" + std::string(name) + "'");
    expect_refused([&](Extension& e) { e.subjects[0].sizes = name; }, "extension: sizes of subject own, '");
    expect_refused([&](Extension& e) { e.harnesses[0].name = name; }, "extension: harness '" + std::string(name) + "'");
    expect_refused([&](Extension& e) { e.harnesses[0].axes[0].name = name; }, "extension: axis of harness ownharness");
    expect_refused([&](Extension& e) { e.harnesses[0].axes[0].values[1] = name; }, "extension: value of axis mode");
    expect_refused([&](Extension& e) { e.harnesses[0].metrics[0].metric = name; }, "extension: metric of harness");
  }
}

TEST(Extension, RefusesNamesThatTheCommandLineReadsAsSomethingElse) {
  for (const char* name : {"cpu", "cpu-net", "cpu.2", "-x", "--help", ".", "..", ".hidden", "halfmark", "halfmark2"}) {
    const std::string start = "'" + std::string(name) + "': a name that starts with '";
    expect_refused([&](Extension& e) { e.name = name; }, "extension: program " + start);
    expect_refused([&](Extension& e) { e.subjects[0].name = name; }, "extension: subject " + start);
    expect_refused([&](Extension& e) { e.subjects[0].sizes = name; }, "extension: sizes of subject own, " + start);
    expect_refused([&](Extension& e) { e.harnesses[0].name = name; }, "extension: harness " + start);
  }
  for (const char* word : {"fp16", "error", "quick", "mlp", "own"})
    expect_refused([&](Extension& e) { e.subjects[0].sizes = word; }, "its sizes are the name of a subject, policy");
  const std::string known = subjects().front().sizes;
  expect_refused([&](Extension& e) { e.subjects[0].name = known; }, "its name is the sizes of a subject");
  expect_refused([&](Extension& e) { e.harnesses[0].name = known; }, "its name is that of a subject, its sizes");
  expect_refused([](Extension& e) { e.harnesses[0].name = "b2_i4"; }, "its name is that of a subject, its sizes");
}

TEST(Extension, SaysWhatIsWrongInOneLine) {
  expect_refused([](Extension& e) { e.subjects[0].name = "two\nlines"; }, "extension: subject 'two");
}

TEST(Extension, RefusesAVersionThatIsMoreThanALine) {
  expect_refused([](Extension& e) { e.version = "1\n2"; }, "extension: version '1 2'");
}

TEST(Extension, RefusesNamesThatAreTaken) {
  expect_refused([](Extension& e) { e.subjects[0] = subjects().front(); }, "there is a subject");
  expect_refused([](Extension& e) { e.subjects.push_back(good_subject()); }, "there is a subject own/b2_i4 already");
  for (const char* word : {"fp16", "error", "quick"}) {
    expect_refused([&](Extension& e) { e.subjects[0].name = word; }, "is that of a policy, harness, device or suite");
    expect_refused([&](Extension& e) { e.harnesses[0].name = word; },
                   "is that of a subject, its sizes, or a policy, harness");
  }
  expect_refused([](Extension& e) { e.harnesses[0].name = "mlp"; },
                 "is that of a subject, its sizes, or a policy, harness");
  expect_refused([](Extension& e) { e.harnesses[0].name = "own"; },
                 "is that of a subject, its sizes, or a policy, harness");
  for (const char* metric : {"error.nmse", "memory.peak", "work.parameters"})
    expect_refused([&](Extension& e) { e.harnesses[0].metrics[0].metric = metric; }, "there is a metric");
}

TEST(Extension, RefusesRowsThatCannotRun) {
  expect_refused([](Extension& e) { e.subjects[0].make = nullptr; }, "has no function `make`");
  expect_refused([](Extension& e) { e.subjects[0].input = {}; }, "empty input shape");
  expect_refused([](Extension& e) { e.subjects[0].input = {2, 0}; }, "empty input shape");
  expect_refused([](Extension& e) { e.harnesses[0].measure = nullptr; }, "has no function `measure`");
  expect_refused([](Extension& e) { e.harnesses[0].metrics.clear(); }, "lists no metrics");
  expect_refused([](Extension& e) { e.harnesses[0].axes[0].values.clear(); }, "has no values");
  expect_refused([](Extension& e) { e.harnesses[0].axes.push_back(e.harnesses[0].axes[0]); },
                 "two axes are named mode");
}

}  // namespace
}  // namespace halfmark::bench
