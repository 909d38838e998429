// Which outcome becomes which element. readers_test.py tests the same with independent readers.
#include "reports/outputs/junit.h"

#include <gtest/gtest.h>

#include <pugixml.hpp>

#include "reports/outputs/sample_judgement.h"

namespace halfmark::reports {
namespace {

pugi::xml_document parsed(const std::string& text) {
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(text.data(), text.size());
  EXPECT_TRUE(result) << result.description() << "\n" << text;
  return document;
}

// The name of the element inside the only test case of a judgement of one line.
std::string element_of_one(Question question, Outcome outcome) {
  Judgement judgement;
  judgement.lines = {judged("a/b", question, outcome, "words")};
  conclude(judgement);
  const pugi::xml_document document = parsed(junit_of(judgement));
  return document.child("testsuites").child("testsuite").child("testcase").first_child().name();
}

TEST(Junit, MakesWhatBrokeAFailureAndWhatIsGoneAnError) {
  EXPECT_EQ(element_of_one(Question::time, Outcome::breach), "failure");
  EXPECT_EQ(element_of_one(Question::accuracy, Outcome::breach), "failure");
  EXPECT_EQ(element_of_one(Question::presence, Outcome::lost), "error");
}

TEST(Junit, SkipsWhatCouldNotBeDecided) {
  for (const Outcome outcome : {Outcome::inconclusive, Outcome::environment_suspect, Outcome::untrusted})
    EXPECT_EQ(element_of_one(Question::time, outcome), "skipped");
}

TEST(Junit, LetsTheRestPassWithItsWords) {
  for (const Outcome outcome : {Outcome::changed, Outcome::acknowledged, Outcome::improved, Outcome::added,
                                Outcome::information, Outcome::pass})
    EXPECT_EQ(element_of_one(Question::memory, outcome), "system-out");
}

TEST(Junit, CountsWhatItHolds) {
  const pugi::xml_document document = parsed(junit_of(sample_judgement()));
  size_t tests = 0;
  for (const pugi::xml_node suite : document.child("testsuites").children("testsuite")) {
    size_t failures = 0, errors = 0, skipped = 0, cases = 0;
    for (const pugi::xml_node node : suite.children("testcase")) {
      failures += !node.child("failure").empty();
      errors += !node.child("error").empty();
      skipped += !node.child("skipped").empty();
      ++cases;
    }
    EXPECT_EQ(suite.attribute("tests").as_uint(), cases);
    EXPECT_EQ(suite.attribute("failures").as_uint(), failures);
    EXPECT_EQ(suite.attribute("errors").as_uint(), errors);
    EXPECT_EQ(suite.attribute("skipped").as_uint(), skipped);
    tests += cases;
  }
  EXPECT_EQ(tests, 13u);  // from 14 lines, two of which are about the memory of one case
}

TEST(Junit, PutsQuestionsOfOneKindIntoOneTestCaseAndTheWorstDecides) {
  Judgement judgement;
  judgement.lines = {judged("a/b", Question::bits, Outcome::changed, "other bits"),
                     judged("a/b", Question::accuracy, Outcome::breach, "too far"),
                     judged("a/b", Question::accuracy, Outcome::pass)};
  conclude(judgement);
  const pugi::xml_document document = parsed(junit_of(judgement));
  const pugi::xml_node suite = document.child("testsuites").child("testsuite");
  EXPECT_EQ(suite.attribute("tests").as_uint(), 1u);
  const pugi::xml_node failure = suite.child("testcase").child("failure");
  EXPECT_STREQ(failure.attribute("type").value(), "ACCURACY_FAIL");
  EXPECT_STREQ(failure.attribute("message").value(), "ACCURACY_FAIL: too far");
  const std::string words = failure.text().get();
  EXPECT_NE(words.find("CHANGED: bits\nother bits"), std::string::npos) << words;
}

TEST(Junit, OfNothingIsStillADocument) {
  EXPECT_STREQ(parsed(junit_of({})).child("testsuites").attribute("name").value(), "halfmark gate");
}

}  // namespace
}  // namespace halfmark::reports
