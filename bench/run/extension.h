// What a program of another project adds to the suite: subjects and harnesses of its own.
#pragma once

#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

struct Extension {
  // Name and version of the program. Reports store both in `environment.extension`, and the name in their commands.
  std::string name{};     // the file name of the program: "mysuite"
  std::string version{};  // any text, for example a git revision
  std::vector<Subject> subjects{};
  std::vector<Harness> harnesses{};
};

// Adds the rows to the tables of subjects and harnesses. Call it once, before the tables are read: a row that is added
// later would invalidate pointers into them. Throws Error, and adds nothing, in these cases: a name is taken, an id
// cannot contain it, or the command line gives it another meaning; another harness writes the metric; or a row lacks
// something that it needs to run.
void extend(Extension extension);

const Extension& extension();  // empty in halfmark itself

}  // namespace halfmark::bench
