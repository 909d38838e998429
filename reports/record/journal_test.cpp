// The journal: whenever a run is killed, its finished records can be read.
#include "reports/record/journal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "reports/record/file.h"
#include "reports/record/folder_testing.h"
#include "reports/record/sample_report_testing.h"

namespace halfmark::reports {
namespace {

namespace fs = std::filesystem;

class JournalFile : public FolderTest {
 protected:
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  // Header and both records of the sample, as text.
  std::string written() const {
    Journal journal = Journal::create(path_, sample_report());
    for (const Record& record : sample_report().records) journal.append(record);
    return read_file(path_);
  }

  const fs::path path_ = folder_ / "run.jsonl";
};

TEST_F(JournalFile, HoldsTheWholeRun) {
  written();
  EXPECT_EQ(to_json(Journal::read(path_)), to_json(sample_report()));
}

TEST_F(JournalFile, TornAnywhereInTheLastLineLosesThatRecordAlone) {
  const std::string whole = written();
  const size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t size = last_line; size < whole.size() - 1; ++size) {
    write(whole.substr(0, size));
    ASSERT_EQ(Journal::read(path_).records.size(), 1u) << size;
  }
  write(whole.substr(0, whole.size() - 1));
  EXPECT_EQ(Journal::read(path_).records.size(), 2u) << "only the line break is missing";
}

TEST_F(JournalFile, GoesOnBehindATornLine) {
  const std::string whole = written();
  for (size_t missing : {0, 1, 2, 20}) {
    write(whole.substr(0, whole.size() - missing));
    Journal::resume(path_).append(sample_report().records[1]);
    EXPECT_EQ(read_file(path_), missing < 2 ? whole + whole.substr(whole.rfind('\n', whole.size() - 2) + 1) : whole);
    EXPECT_EQ(to_json(Journal::read(path_)), to_json(sample_report()));
  }
}

TEST_F(JournalFile, KeepsTheLaterOfTwoRecordsWithOneId) {
  Journal journal = Journal::create(path_, sample_report());
  Record record = sample_report().records[0];
  record.status = Status::failed;
  record.reason = "killed";
  journal.append(record);
  journal.append(sample_report().records[1]);
  journal.append(sample_report().records[0]);
  EXPECT_EQ(to_json(Journal::read(path_)), to_json(sample_report()));
}

TEST_F(JournalFile, IsStartedAnewByCreate) {
  written();
  Journal::create(path_, sample_report());
  EXPECT_TRUE(Journal::read(path_).records.empty());
}

TEST_F(JournalFile, IsNeverWrittenOverWhatIsNone) {
  const fs::path victim = folder_ / "victim";
  for (const std::string& text :
       {std::string("[1, 2]"), std::string(), std::string("{\"journal\""), std::string("{\"my\": \"notes\"}\n")}) {
    write(text);
    EXPECT_SAYS(complaint([&] { Journal::create(path_, sample_report()); }),
                "run.jsonl: is not a journal of halfmark; move it away or name another report with -o");
    EXPECT_EQ(read_file(path_), text);
  }
  fs::remove(path_);
  EXPECT_FALSE(Journal::is_at(path_));
  const std::string whole = written();
  EXPECT_TRUE(Journal::is_at(path_));
  fs::rename(path_, victim);
  fs::create_symlink("victim", path_);
  EXPECT_SAYS(complaint([&] { Journal::create(path_, sample_report()); }), "is not a journal of halfmark");
  EXPECT_THROW(Journal::resume(path_), ReportError);
  EXPECT_EQ(read_file(victim), whole);
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_SAYS(complaint([&] { Journal::create(path_, sample_report()); }), "is not a journal of halfmark");
}

TEST_F(JournalFile, SaysWhatIsWrongWithIt) {
  const auto message = [&](const std::string& text) {
    write(text);
    return complaint([&] { Journal::read(path_); });
  };
  const std::string whole = written();
  std::string broken = whole;
  broken[whole.find('\n') + 5] = '\0';
  EXPECT_SAYS(message(broken), "jsonl, line 2: is not valid JSON");
  EXPECT_SAYS(message(""), "is empty");
  EXPECT_SAYS(message("{\"schema\": 1"), "line 1: ends in the middle");
  EXPECT_SAYS(message("{}\n"), "not the header of a journal");
  EXPECT_SAYS(message("{\"journal\":1,\"schema\":2}\n"), "schema 2");
  EXPECT_THROW(Journal::create(folder_ / "absent" / "j.jsonl", sample_report()), ReportError);
  EXPECT_THROW(Journal::resume(folder_ / "absent" / "j.jsonl"), ReportError);
}

}  // namespace
}  // namespace halfmark::reports
