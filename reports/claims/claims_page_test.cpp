// The page reports/claims.md against claims.json: a verdict on it was found by today's rule from today's cases.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/paths_testing.h"

namespace halfmark::reports {
namespace {

using nlohmann::ordered_json;

std::string in_a_cell(std::string text) {
  for (size_t at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

// As the page writes the source of a number, from the words of claims.json alone.
std::string said_source(const ordered_json& source) {
  static const std::map<std::string, std::string> kTakes = {
      {"", ""}, {"max", "the largest "}, {"min", "the smallest "}, {"mean", "the mean "}, {"sum", "the sum of "}};
  std::ostringstream text;
  text << kTakes.at(source.value("take", "")) << '`' << source.value("metric", source.value("curve", "")) << '`';
  if (source.contains("at")) text << " at `" << std::string(source["at"]) << '`';
  if (source.contains("x")) text << " at x = " << double(source["x"]);
  if (source.contains("reaches")) text << ", the first x at which it reaches " << double(source["reaches"]);
  if (source.contains("falls_below")) text << ", the first x at which it falls below " << double(source["falls_below"]);
  const ordered_json cases = source.contains("case") ? ordered_json::array({source["case"]}) : source["cases"];
  const char* before = " of `";
  for (std::string id : cases) {
    id.replace(id.find("{device}"), std::string_view("{device}").size(), "cpu");
    text << before << id << '`', before = ", `";
  }
  return text.str();
}

// The verdicts in the repository are those of today's rules.
TEST(ClaimsPage, HasTheClaimsRulesAndSourcesOfTheList) {
  const std::string page = read_file(test_folders::source() + "/reports/claims.md");
  const ordered_json claims =
      parse_json(read_file(test_folders::source() + "/reports/claims/claims.json"), "claims.json");
  EXPECT_EQ(claims["entries"].size(), 87u);
  for (const ordered_json& entry : claims["entries"]) {
    const std::string id = entry["id"], claim = entry["claim"], rule = entry.value("rule", ""),
                      note = entry.value("note", "");
    const size_t begin = page.find("\n| " + id + " " + in_a_cell(claim) + " | ");
    ASSERT_NE(begin, page.npos) << id << ": its claim is another one in reports/claims.md";
    const std::string row = page.substr(begin + 1, page.find('\n', begin + 1) - begin - 1);
    const std::string said = in_a_cell(rule + (note.empty() ? "" : ". " + note));
    EXPECT_NE(row.find(" | " + said + " | "), row.npos) << id << ": its rule is another one in reports/claims.md";
    if (!entry.contains("numbers")) continue;
    const size_t head = page.find("\n- " + id + "\n");
    ASSERT_NE(head, page.npos) << id << ": reports/claims.md has no sources of it";
    const size_t first = head + id.size() + 4;
    const std::string sources = page.substr(first, page.find("\n- ", first) + 1 - first);
    for (const auto& [name, source] : entry["numbers"].items()) {
      const std::string line = "  - " + name + ": " + said_source(source) + "\n";
      EXPECT_NE(sources.find(line), sources.npos) << id << ": reports/claims.md has another source: " << line;
    }
  }
}

}  // namespace
}  // namespace halfmark::reports
