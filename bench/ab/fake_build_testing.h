// A fake build for tests: a shell script that answers like `halfmark sample`, with given times.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/temporary_folder.h"

namespace halfmark::bench {

struct FakeBuild {
  std::vector<std::string> cases{"one", "two", "three"};
  std::map<std::string, std::string> seconds{};  // time of a case or canary; default 0.01
  std::map<std::string, std::string> instead{};  // shell commands instead of an answer: "exit 3", "sleep 9"
  std::string stolen = "0";
  std::string version = "halfmark fake";
  std::string shared_pages{};
  std::string log{};  // every request is appended to this file as "NAME case"

  // Writes the script and returns its path; `log` uses the name of the script.
  std::string write(const std::filesystem::path& path) const {
    std::string script = "#!/bin/sh\ncase \"$1\" in\n--version) echo '" + version + "';;\nrun)";
    for (const std::string& one : cases) script += " echo '" + one + "';";
    script += ":;;\nsample) while read -r id; do\n";
    if (!log.empty()) script += "echo \"" + path.filename().string() + " $id\" >> '" + log + "'\n";
    script += "s=0.01\ncase \"$id\" in\n";
    for (const auto& [id, value] : seconds) script += "'" + id + "') s=" + value + ";;\n";
    for (const auto& [id, command] : instead) script += "'" + id + "') " + command + ";;\n";
    script += "esac\necho '{\"case\":\"'$id'\",\"seconds\":'$s',\"samples\":9,\"half_width\":0,\"stolen\":" + stolen +
              ",\"wall\":0.05,\"refused\":false,\"reason\":\"\",\"shared_pages\":\"" + shared_pages +
              "\"}'\ndone;;\nesac\n";
    std::ofstream(path) << script;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
};

}  // namespace halfmark::bench
