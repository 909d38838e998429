// Reads the text of a PTX module, as nvcc writes it, into kernels that can be run.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/software_gpu/program.h"

namespace halfmark::kernels::software_gpu {

// `name`: for messages. Throws Error "NAME:LINE: what" for anything that is not understood: an instruction with a
// modifier that has no handler, an operand of the wrong width, a directive. Nothing is skipped.
// Not supported: functions other than kernels, and calls.
Module read_module(std::string_view text, const std::string& name);

// The same without the bodies of kernels, most of which a program never launches; and the body of one of them, with the
// same text.
Module read_module_without_bodies(std::string_view text, const std::string& name);
void read_body_of(std::string_view text, Module& module, Kernel& kernel);

}  // namespace halfmark::kernels::software_gpu
