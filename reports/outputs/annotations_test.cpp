#include "reports/outputs/annotations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reports/outputs/sample_judgement.h"

namespace halfmark::reports {
namespace {

Judgement findings(size_t count, Outcome outcome) {
  Judgement judgement;
  for (size_t i = 0; i < count; ++i)
    judgement.lines.push_back(judged("case-" + std::to_string(i), Question::bits, outcome, "words"));
  conclude(judgement);
  return judgement;
}

long lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Annotations, AreErrorsForWhatBrokeAndWarningsForWhatWantsALook) {
  const Outcome errors[] = {Outcome::breach, Outcome::lost};
  const Outcome warnings[] = {Outcome::environment_suspect, Outcome::inconclusive, Outcome::untrusted,
                              Outcome::changed};
  const Outcome silent[] = {Outcome::acknowledged, Outcome::improved, Outcome::added, Outcome::information,
                            Outcome::pass};
  for (const Outcome outcome : errors) EXPECT_TRUE(annotations_of(findings(1, outcome)).starts_with("::error title="));
  for (const Outcome outcome : warnings)
    EXPECT_TRUE(annotations_of(findings(1, outcome)).starts_with("::warning title="));
  for (const Outcome outcome : silent) EXPECT_EQ(annotations_of(findings(3, outcome)), "");
}

TEST(Annotations, SayWhatAndHowToSeeItAgain) {
  EXPECT_EQ(annotations_of(findings(1, Outcome::breach)),
            "::error title=halfmark ACCURACY_FAIL::case-0, bits%0Awords%0Areproduce: halfmark run --case case-0\n");
  EXPECT_NE(annotations_of(sample_judgement()).find("time.step at hot: +6.1 %25 (95 %25 interval +5.2 ... +7.0 %25)"),
            std::string::npos);
}

TEST(Annotations, AreFiveAtMostAndTheFifthCountsTheRest) {
  EXPECT_EQ(lines(annotations_of(findings(5, Outcome::changed))), 5);
  EXPECT_EQ(annotations_of(findings(5, Outcome::changed)).find("more findings"), std::string::npos);
  const std::string text = annotations_of(findings(99, Outcome::changed));
  EXPECT_EQ(lines(text), 5);
  EXPECT_NE(text.find("\n::warning title=halfmark::95 more findings; "), std::string::npos) << text;
}

TEST(Annotations, CountErrorsAmongTheRestAsAnError) {
  EXPECT_NE(annotations_of(findings(6, Outcome::breach)).find("\n::error title=halfmark::2 more findings"),
            std::string::npos);
}

TEST(Annotations, StayOneLineEachWhateverTheNames) {
  for (const std::string& name : hostile_names()) {
    Judgement judgement;
    judgement.lines = {judged(name, Question::time, Outcome::breach, name)};
    const std::string text = annotations_of(judgement);
    EXPECT_EQ(lines(text), 1) << text;
    EXPECT_TRUE(text.starts_with("::error title=halfmark REGRESSION::")) << text;
    EXPECT_EQ(text.find('\r'), std::string::npos);
    EXPECT_LT(text.size(), 10000u);
  }
}

}  // namespace
}  // namespace halfmark::reports
