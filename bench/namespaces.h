// Makes the names of the levels below bench/ visible without qualification.
#pragma once

namespace halfmark::accuracy {}
namespace halfmark::kernels {}
namespace halfmark::models {}
namespace halfmark::reports {}

namespace halfmark::bench {
using namespace accuracy;
using namespace kernels;
using namespace models;
using namespace reports;
}  // namespace halfmark::bench
