// Makes the names of the levels below accuracy/ visible without qualification.
#pragma once

namespace halfmark::kernels {}
namespace halfmark::models {}
namespace halfmark::reports {}

namespace halfmark::accuracy {
using namespace kernels;
using namespace models;
using namespace reports;
}  // namespace halfmark::accuracy
