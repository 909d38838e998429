#include "bench/commands/kernel_lists.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "bench/namespaces.h"
#include "bench/run/standard_streams.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/number/quantizer.h"
#include "kernels/ops/ops.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::bench {

using Json = nlohmann::ordered_json;

Json kernels_json() {
  Json list = Json::array();
  for (const DeviceRow& row : known_devices()) {
    if (!row.absent.empty()) continue;
    std::shared_ptr<Device> device;
    try {
      device = open_device(row.name);
    } catch (const Error& error) {  // the others are listed
      complain(fmt::format("{}; its kernels are not listed", error.what()));
      continue;
    }
    device->kernels().each([&](const auto& kernels) {
      for (const auto& kernel : kernels) {
        using Op = typename decltype([]<class O>(const Kernel<O>&) { return std::type_identity<O>{}; }(kernel))::type;
        list.push_back(
            {{"device", row.name}, {"operation", Op::name}, {"row", kernel.name}, {"speed", name_of(kernel.speed)}});
      }
    });
  }
  return list;
}

Json quantizers_json() {
  Json list = Json::array();
  for (const Quantizer& row : quantizers())
    list.push_back({{"name", row.name},
                    {"element", name_of(row.element)},
                    {"scale", name_of(row.scale)},
                    {"tile", {row.tile_rows, row.tile_depth}},
                    {"tensor_scale", row.has_tensor_scale},
                    {"about", row.about}});
  return list;
}

// The rows of the simulated tensor cores, each with the citations that its evidence names.
namespace {

Json instruction_json(const TensorCore& core) {
  const bool blocks = core.summation != Summation::fma_chain;
  const auto number = [&](int value) { return blocks && value != kNoZeroExponent ? Json(value) : Json(nullptr); };
  Json citations = Json::array();
  for (const InstructionSource& source : instruction_sources())
    if (core.source.find(source.key) != core.source.npos) citations.push_back(source.citation);
  return {{"architecture", core.architecture},
          {"instruction", name_of(core.instruction)},
          {"operands", name_of(core.operands)},
          {"scale", core.scaling.block ? fmt::format("{} per {}", name_of(core.scaling.type), core.scaling.block)
                                       : std::string()},
          {"addend", core.addend.name},
          {"result", core.result.name},
          {"summation", text_of(core.summation)},
          {"products_per_block", number(core.block.products)},
          {"kept_fraction_bits", number(core.block.kept_fraction_bits)},
          {"zero_exponent", number(core.block.zero_exponent)},
          {"rounding", blocks ? text_of(core.block.rounding) : "each operation to nearest even"},
          {"evidence", core.source},
          {"sources", citations}};
}

}  // namespace

Json instructions_json() {
  Json list = Json::array();
  for (const TensorCore& core : tensor_cores()) list.push_back(instruction_json(core));
  return list;
}

std::string kernels_text(const Json& list, const TextOptions& options) {
  // Simulated devices share the rows of host memory. One line per operation and device, with the rows in the order they
  // are tried.
  Table table({"device", "operation", "kernels in the order they are tried; the first that accepts the work runs"}, 3);
  for (size_t i = 0; i < list.size();) {
    std::string rows;
    size_t j = i;
    for (; j < list.size() && list[j]["device"] == list[i]["device"] && list[j]["operation"] == list[i]["operation"];
         ++j)
      rows += fmt::format("{}{}{}", rows.empty() ? "" : ", ", list[j]["row"].get<std::string>(),
                          list[j]["speed"] == "emulated" ? " (emulated)" : "");
    table.add({{list[i]["device"].get<std::string>(), Tone::plain},
               {list[i]["operation"].get<std::string>(), Tone::plain},
               {rows, Tone::plain}});
    i = j;
  }
  return table.text(options);
}

// The description of each row; its numbers have separate keys in the JSON.
std::string instructions_text(const Json& list, const TextOptions& options) {
  std::string text;
  size_t row = 0;  // of the list, whose rows have the order of the table
  for (const TensorCore& core : tensor_cores()) {
    if (row == list.size() || list[row] != instruction_json(core)) continue;
    const Json& zero = list[row++]["zero_exponent"];
    text += wrapped(fmt::format("{:<14} {:<13} ", core.architecture, name_of(core.instruction)),
                    fmt::format("{}{} ({})", text_of(core),
                                zero.is_null() ? "" : fmt::format(", e_zero {}", zero.get<int>()), core.source),
                    options.width);
  }
  text += "\nSources of the evidence:\n";
  for (const InstructionSource& source : instruction_sources())
    text += wrapped(fmt::format("  {}: ", source.key), std::string(source.citation), options.width);
  return text;
}

std::string quantizers_text(const Json& list, const TextOptions& options) {
  Table table({"quantizer", "element", "scale", "tile", "about"}, 5);
  for (const Json& row : list) {
    const auto extent = [&](size_t i) {
      const auto size = row["tile"][i].get<int64_t>();
      return size == 0 ? std::string("all") : std::to_string(size);
    };
    table.add({{row["name"].get<std::string>()},
               {row["element"].get<std::string>()},
               {row["scale"].get<std::string>()},
               {extent(0) + " x " + extent(1)},
               {row["about"].get<std::string>()}});
  }
  return table.text(options) +
         wrapped(
             "",
             "A tile of rows x elements along the sums of a product shares a scale. halfmark quantize applies a row.",
             options.width);
}

}  // namespace halfmark::bench
