#include "bench/run/record_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "bench/run/case_processes.h"
#include "bench/run/standard_streams.h"
#include "kernels/number/error.h"
#include "reports/record/error.h"
#include "reports/record/file.h"
#include "reports/record/printable.h"
#include "reports/record/provenance.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

void check_output(const std::filesystem::path& output) {
  if (output.empty()) throw Error("no output file: -o needs a file name");
  std::error_code ignored;
  if (std::filesystem::is_directory(output, ignored))
    throw Error(output.string() + ": is a directory; name a file with -o");
  require_open_for_writing(output);
  const bool exists = std::filesystem::exists(output, ignored);
  if (exists && ::access(output.c_str(), W_OK) != 0)
    throw Error(fmt::format("{}: cannot be written ({}); name another file with -o", output.string(),
                            std::generic_category().message(errno)));
  const std::filesystem::path folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
  if (!exists && !std::filesystem::is_directory(folder, ignored))
    throw Error(folder.string() + ": no such directory; create it or name another file with -o");
  if (!is_written_in_place(output) && ::access(folder.c_str(), W_OK) != 0)
    throw Error(fmt::format("{}: cannot be written to ({}); name another place with -o",
                            std::filesystem::absolute(folder).lexically_normal().string(),
                            std::generic_category().message(errno)));
}

void check_descriptor(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
    throw Error(fmt::format("--output-descriptor {}: is not open for writing; use -o", descriptor));
}

// FILE.old, or FILE.old2 and so on: the first that no file has.
std::filesystem::path free_old_name(const std::filesystem::path& file) {
  std::filesystem::path name = file.string() + ".old";
  std::error_code ignored;
  for (int number = 2; std::filesystem::exists(std::filesystem::symlink_status(name, ignored)); ++number)
    name = fmt::format("{}.old{}", file.string(), number);
  return name;
}

// A report that is not finished must not replace a finished one of an earlier run. No report replaces a file that is none.
void keep_earlier(const std::filesystem::path& output, bool is_complete) {
  const std::filesystem::path target = target_of(output);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(target, ignored) || std::filesystem::file_size(target, ignored) == 0) return;
  try {
    if (!Report::load(target).run.complete || is_complete) return;
  } catch (const ReportError&) {  // no report: the user may need it
  }
  const std::filesystem::path kept = free_old_name(target);
  std::filesystem::rename(target, kept, ignored);
  if (!ignored) complain(fmt::format("the earlier {} is kept as {}", output.string(), kept.string()));
}

// A new run must not destroy the records of an earlier one.
void set_aside(const std::filesystem::path& journal) {
  try {
    if (Journal::read(journal).records.empty()) return;
  } catch (const ReportError&) {  // damaged: kept for inspection by the user
  }
  const std::filesystem::path kept = free_old_name(journal);
  std::filesystem::rename(journal, kept);
  complain(
      fmt::format("the journal of an earlier run is kept as {}; --resume continues the journal of the same command",
                  kept.string()));
}

}  // namespace

std::filesystem::path journal_of(const std::filesystem::path& output) { return output.string() + ".journal"; }

RecordStore::RecordStore(std::filesystem::path output, int descriptor)
    : output_(std::move(output)),
      journal_path_(journal_of(output_)),
      descriptor_(descriptor),
      to_file_(descriptor < 0 && !is_written_in_place(output_)) {
  if (descriptor_ >= 0) {
    check_descriptor(descriptor_);
    return;
  }
  check_output(output_);
  if (!to_file_) return;
  lock_.emplace(output_);
  Journal::is_at(journal_path_);
  remove_leftovers(output_);
  remove_leftovers(journal_path_);
}

namespace {

std::string without_resume(std::string command) {
  constexpr std::string_view kOption = " --resume";
  if (const size_t at = command.find(kOption); at != command.npos) command.erase(at, kOption.size());
  return command;
}

// The probes of a device are hundreds of characters.
std::string shortened(const std::string& text) { return text.size() <= 60 ? text : text.substr(0, 57) + "..."; }

}  // namespace

std::optional<Report> RecordStore::finished_report(const std::vector<std::string>& ids) const {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(target_of(output_), ignored)) return std::nullopt;
  Report report;
  try {
    report = Report::load(output_);
  } catch (const ReportError&) {  // no report
    return std::nullopt;
  }
  const auto refuse = [&](const std::string& what) {
    throw Error(fmt::format(
        "{}: is the report of another run, with {}; name another file with -o, or replace it without --resume",
        output_.string(), what));
  };
  if (report.run.seed != header_.run.seed) refuse(fmt::format("--seed {}", report.run.seed));
  if (report.run.plan.hash != header_.run.plan.hash || report.run.shard != header_.run.shard)
    refuse(fmt::format("other cases (`{}`)", printable(report.run.command)));
  if (const auto other = difference_of(report.environment, header_.environment))
    refuse(fmt::format("{} {}, which is {} now (`{}`)", printable(other->key), printable(shortened(other->here)),
                       printable(shortened(other->there)), printable(report.run.command)));
  if (const std::string changed = changed_text(report); !changed.empty()) {
    const std::filesystem::path kept = free_old_name(target_of(output_));
    std::filesystem::rename(target_of(output_), kept);
    complain(fmt::format("{}: {}; it is kept as {}", output_.string(), printable(changed), kept.string()));
    return std::nullopt;
  }
  if (!report.run.complete || report.run.plan.cases == 0 || report.records.size() != records_.size())
    return std::nullopt;
  for (size_t place = 0; place < ids.size(); ++place)
    if (report.records[place].id != ids[place] || !is_complete(report.records[place], processes_)) return std::nullopt;
  return report;
}

std::vector<Record> RecordStore::earlier_records(bool resume) const {
  if (!Journal::is_at(journal_path_)) {
    if (resume)
      complain(fmt::format("nothing to resume, because there is no {}: measuring all cases", journal_path_.string()));
    return {};
  }
  if (!resume) return set_aside(journal_path_), std::vector<Record>{};
  Report kept = Journal::read(journal_path_);
  const auto refuse = [&](const std::string& what) {
    throw Error(fmt::format("{}: was started with {}; repeat that command or start without --resume",
                            journal_path_.string(), what));
  };
  if (kept.run.seed != header_.run.seed) refuse(fmt::format("--seed {}", kept.run.seed));
  const bool is_same_command = without_resume(kept.run.command) == without_resume(header_.run.command);
  if (is_same_command && kept.run.plan.cases == header_.run.plan.cases && kept.run.plan.hash != header_.run.plan.hash)
    throw Error(fmt::format(
        "{}: the files that `{}` reads, or the networks of the program, have changed since; start without --resume",
        journal_path_.string(), kept.run.command));
  if (kept.run.plan.cases > 0 && (kept.run.plan.hash != header_.run.plan.hash || kept.run.shard != header_.run.shard))
    refuse(fmt::format("other cases (`{}`)", kept.run.command));
  if (const auto other = difference_of(kept.environment, header_.environment))
    refuse(fmt::format("{} {}, which is {} now (`{}`)", other->key, shortened(other->here), shortened(other->there),
                       kept.run.command));
  expect_checksums(kept);
  if (const auto changed = std::erase_if(kept.records, [](const Record& one) { return one.intact == Intact::no; }))
    complain(fmt::format("{}: {} changed after {} written (checksum wrong or missing): measured again",
                         journal_path_.string(), counted(changed, "record"), changed == 1 ? "it was" : "they were"));
  return std::move(kept.records);
}

void RecordStore::begin(Report header, const std::vector<std::string>& ids, int processes, bool resume) {
  const std::lock_guard lock(mutex_);
  begun_ = true;
  header_ = std::move(header);
  processes_ = processes;
  records_.resize(ids.size());
  if (!to_file_) return;
  if (resume && !Journal::is_at(journal_path_)) {
    finished_ = finished_report(ids);
    if (finished_) {
      const auto failed = std::ranges::count(finished_->records, Status::failed, &Record::status);
      complain(fmt::format("{} is finished: nothing to resume{}", output_.string(),
                           failed == 0 ? ""
                                       : fmt::format("; {} failed, which a run without --resume measures again",
                                                     counted(static_cast<size_t>(failed), "case"))));
      for (size_t place = 0; place < records_.size(); ++place) records_[place] = finished_->records[place];
      return;
    }
  }
  std::map<std::string, Record> earlier;
  for (Record& record : earlier_records(resume)) earlier.emplace(record.id, std::move(record));
  resumed_ = !earlier.empty();
  journal_ = earlier.empty() ? Journal::create(journal_path_, header_) : Journal::resume(journal_path_);
  for (size_t place = 0; place < ids.size(); ++place) {
    const auto found = earlier.find(ids[place]);
    // With --processes, a record that was measured without it is measured again.
    if (found != earlier.end() && (processes == 0 || is_complete(found->second, 1)))
      records_[place] = std::move(found->second);
  }
}

void RecordStore::add(size_t place, Record record) {
  const std::lock_guard lock(mutex_);
  try {
    if (journal_) journal_->append(record);
  } catch (const ReportError& error) {
    throw_kept(error);
  }
  records_[place] = std::move(record);
}

Report RecordStore::report() const {
  const std::lock_guard lock(mutex_);
  Report report = header_;
  report.run.complete = begun_;
  for (const auto& record : records_) {
    if (record) report.records.push_back(*record);
    report.run.complete = report.run.complete && record && is_complete(*record, processes_);
  }
  report.run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return report;
}

Report RecordStore::save() const {
  const std::lock_guard lock(saving_);  // two threads may save: each leaves a whole file
  if (finished_) return *finished_;     // the file has it
  Report whole = report();
  if (!whole.run.complete && whole.records.empty()) return whole;
  try {
    if (descriptor_ >= 0)
      whole.write_to(descriptor_, fmt::format("descriptor {}", descriptor_));
    else {
      if (to_file_) keep_earlier(output_, whole.run.complete);
      whole.save(output_);
    }
  } catch (const ReportError& error) {
    if (!to_file_) throw;
    throw_kept(error);
  }
  return whole;
}

void RecordStore::end_journal(const Report& saved) {
  const std::lock_guard lock(mutex_);
  const bool is_empty = saved.records.empty() && !resumed_;
  if (!journal_ || !(saved.run.complete || is_empty)) return;
  journal_.reset();
  std::error_code ignored;
  std::filesystem::remove(journal_path_, ignored);
}

void RecordStore::throw_kept(const ReportError& error) const {
  throw Error(fmt::format("{}; the finished cases are in {}: repeat the command with --resume", error.what(),
                          journal_path_.string()));
}

}  // namespace halfmark::bench
