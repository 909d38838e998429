#include "bench/commands/claim_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "reports/claims/claims.h"

namespace halfmark::bench {

namespace {

constexpr size_t kBesideClaim = 70;  // columns of a terminal that has room for a claim beside its id

std::string place_of(const Claim& claim) {
  if (!claim.not_testable.empty()) return "nowhere";
  return claim.needs.empty() ? "any device" : claim.needs + " only";
}

}  // namespace

nlohmann::ordered_json claims_list_json() {
  // The ids of the cases keep their {device}.
  const ClaimList claims = reports::shipped_claims("{device}", false);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Claim& claim : claims.claims)
    list.push_back({{"id", claim.id},
                    {"article", claims.articles.at(claim.article)},
                    {"claim", claim.text},
                    {"decided_on", place_of(claim)},
                    {"reason", claim.not_testable},
                    {"cases", claim.cases}});
  return list;
}

std::string claims_list_text(const nlohmann::ordered_json& list, const TextOptions& options) {
  const auto text_of = [](const nlohmann::ordered_json& row, const char* key) {
    return row.at(key).get<std::string>();
  };
  size_t id_width = 0, place_width = 0;
  for (const auto& row : list) {
    id_width = std::max(id_width, text_of(row, "id").size());
    place_width = std::max(place_width, text_of(row, "decided_on").size());
  }
  const bool is_beside = options.width >= kBesideClaim;
  const std::string indent(is_beside ? id_width + place_width + 4 : 2, ' ');
  std::string text, article;
  size_t nowhere = 0;
  for (const auto& row : list) {
    const std::string id = text_of(row, "id"), name = text_of(row, "article"), place = text_of(row, "decided_on");
    if (name != article) {
      article = name;
      std::string heading = wrapped(id.substr(0, id.find('-')) + ": ", article, options.width);
      heading.pop_back();
      text += (text.empty() ? "" : "\n") + toned(heading, Tone::strong, options.colour) + "\n";
    }
    const std::string lead = fmt::format("{:<{}}  {:<{}}  ", id, id_width, place, is_beside ? place_width : 0);
    text += is_beside ? wrapped(lead, text_of(row, "claim"), options.width)
                      : lead.substr(0, lead.find_last_not_of(' ') + 1) + "\n" +
                            wrapped(indent, text_of(row, "claim"), options.width);
    if (const std::string reason = text_of(row, "reason"); !reason.empty()) {
      text += wrapped(indent, "not testable: " + reason, options.width);
      ++nowhere;
    }
  }
  return text + "\n" +
         wrapped("",
                 fmt::format("{} claims, {} of them decided by no number. any device: where the cases run; times also "
                             "need kernels that are not emulated. halfmark claims ID measures one.",
                             list.size(), nowhere),
                 options.width);
}

}  // namespace halfmark::bench
