// Prints a history on a terminal: for each series with a change point, a curve of its ratios and the changes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "reports/history/history.h"
#include "reports/record/shell.h"

namespace halfmark::reports {

namespace {

constexpr size_t kIndent = 2;
constexpr std::string_view kConfirm = "confirm: ";
constexpr std::string_view kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

// One bar per point and a line before each change; if the series
// is longer than the terminal is wide, its latest points.
std::string curve_of(const HistorySeries& series, const TextOptions& options) {
  const size_t room = std::max<size_t>(options.width, 40) - kIndent - series.changes.size();
  const size_t first = series.points.size() > room ? series.points.size() - room : 0;
  double low = INFINITY, high = -INFINITY;
  for (size_t i = first; i < series.points.size(); ++i) {
    low = std::min(low, std::log(series.points[i].ratio));
    high = std::max(high, std::log(series.points[i].ratio));
  }
  // The height of the curve is at least 2 %, so that noise does not fill it.
  const double middle = (low + high) / 2, height = std::max(high - low, 0.02);
  std::string curve;
  for (size_t i = first; i < series.points.size(); ++i) {
    const auto change =
        std::find_if(series.changes.begin(), series.changes.end(), [&](const ChangePoint& one) { return one.at == i; });
    if (change != series.changes.end()) curve += "|";
    const double place = (std::log(series.points[i].ratio) - middle) / height + 0.5;
    curve += kBars[static_cast<size_t>(std::clamp(place * 8, 0.0, 7.0))];
  }
  return curve;
}

std::string name_of(const HistorySeries& series) {
  std::string name = series.id + "  " + series.metric;
  if (!series.at.empty()) name += " at " + series.at;
  if (!series.machine.empty()) name += ", " + series.machine;
  return printable(name);
}

std::string in_percent(double logarithm) { return fmt::format("{:+.1f} %", 100 * std::expm1(logarithm)); }

// "mlp b32_i64_h128_o10 cpu fp16 throughput": the words that select the case on a command line.
std::string selecting(std::string_view id) {
  std::string words;
  for (size_t begin = 0; begin <= id.size();) {
    const size_t end = std::min(id.find('/', begin), id.size());
    words += (begin == 0 ? "" : " ") + shell_word(id.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string text_of(const HistorySeries& series, const ChangePoint& change, size_t index, const TextOptions& options) {
  const HistoryPoint &last = series.points[change.at - 1], &first = series.points[change.at];
  const size_t begin = index ? series.changes[index - 1].at : 0;
  const size_t end = index + 1 < series.changes.size() ? series.changes[index + 1].at : series.points.size();
  const bool worse = series.worse(change);
  std::string text(kIndent, ' ');
  const std::string amount = fmt::format("{} {}", in_percent(change.change()), worse ? "worse" : "better");
  text += change.undecided ? toned("undecided, drift or change: " + amount, Tone::dim, options.colour)
                           : toned(amount, worse ? Tone::bad : Tone::good, options.colour);
  text += printable(fmt::format("  {} ({}) -> {} ({}), {} points before and {} after, p {:.1g}", last.build,
                                last.started.substr(0, 10), first.build, first.started.substr(0, 10), change.at - begin,
                                end - change.at, change.p)) +
          "\n";
  if (!series.beside[index].empty())
    text += wrapped("  ", printable("changed there too: " + series.beside[index]), options.width);
  if (worse && series.metric.starts_with("time."))
    text += toned(printable(fmt::format("{:{}}{}halfmark ab {} {} {}", "", kIndent, kConfirm,
                                        shell_word("BUILD-" + last.build), shell_word("BUILD-" + first.build),
                                        selecting(series.id))),
                  Tone::dim, options.colour) +
            "\n";
  return text;
}

}  // namespace

std::string text_of(const History& history, const TextOptions& options) {
  size_t changes = 0, undecided = 0, changed = 0;
  for (const HistorySeries& series : history.series) {
    const auto open = static_cast<size_t>(std::count_if(series.changes.begin(), series.changes.end(),
                                                        [](const ChangePoint& one) { return one.undecided; }));
    undecided += open, changes += series.changes.size() - open, changed += open < series.changes.size();
  }
  std::string text =
      wrapped("",
              fmt::format("{} and {}, ratios to {}: {} series, {} in {} of them", counted(history.reports, "report"),
                          counted(history.judgements, "judgement"), printable(history.anchor), history.series.size(),
                          counted(changes, "change point"), changed),
              options.width);
  if (undecided > 0)
    text += wrapped("",
                    fmt::format("{} undecided: the series drifts or its points depend on each other so much that a "
                                "change of this size may be drift.",
                                counted(undecided, "further change")),
                    options.width);
  for (const HistorySeries& series : history.series) {
    if (series.changes.empty() && !options.all) continue;
    text += "\n" + toned(name_of(series), Tone::strong, options.colour) + "\n";
    text += fmt::format("{:{}}{}\n", "", kIndent, curve_of(series, options));
    for (size_t i = 0; i < series.changes.size(); ++i) text += text_of(series, series.changes[i], i, options);
  }
  if (changes + undecided > 0)
    text +=
        "\n" + wrapped("",
                       fmt::format("A change point is not a verdict.{}",
                                   text.find(kConfirm) == text.npos
                                       ? ""
                                       : " The command after \"confirm:\" gives one, from pairs of fresh processes."),
                       options.width);
  for (const std::string& remark : history.remarks) text += "\n" + wrapped("- ", printable(remark), options.width);
  return text;
}

}  // namespace halfmark::reports
