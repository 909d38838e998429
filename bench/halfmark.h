// The suite as a library: a program with all commands of halfmark that also measures subjects and harnesses of its own.
// bench/package_example shows one, with the build file that it needs.
#pragma once

#include "accuracy/accuracy.h"           // Harness, MetricRow, FindingsWriter
#include "accuracy/exponents.h"          // histograms of exponents, headroom
#include "accuracy/oracle.h"             // the fp64 reference of a trial
#include "accuracy/stats.h"              // errors against it
#include "bench/run/extension.h"         // Extension
#include "kernels/number/error.h"        // Error: the exception for invalid input and failed calls
#include "models/layer.h"                // layers, and the interface that your own layers implement
#include "models/layers/tapped_layer.h"  // the base class of layers that are not containers
#include "models/trial.h"                // one execution of a subject under a policy

namespace halfmark::bench {

// Runs the command line of halfmark with the rows of the extension. Returns the exit code; a faulty extension is one
// line on standard error and exit code 2.
int run_command_line(int argc, char** argv, Extension extension);

}  // namespace halfmark::bench
