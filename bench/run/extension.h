// What a program of another project adds to the suite: subjects and harnesses of its own.
#pragma once

#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

struct Extension {
  // The program: in the commands that reports record, and in `environment.extension` of a report.
  std::string name{};     // of its file: "mysuite"
  std::string version{};  // as it names itself, for example a git revision
  std::vector<Subject> subjects{};
  std::vector<Harness> harnesses{};
};

// Adds the rows to the tables of subjects and harnesses. Call it once, before the tables are read: a row that is added
// later would invalidate pointers into them. Throws Error, and adds nothing, for a name that is taken, that an id cannot
// hold or that the command line reads as something else, a metric that another harness writes, and a row without what it
// needs to run.
void extend(Extension extension);

const Extension& extension();  // empty in halfmark itself

}  // namespace halfmark::bench
