#include "bench/run/program_name.h"

namespace halfmark::bench {

namespace {

std::string& current_name() {
  static std::string name = "halfmark";
  return name;
}

}  // namespace

const std::string& program_name() { return current_name(); }

void set_program_name(const std::string& name) { current_name() = name; }

}  // namespace halfmark::bench
