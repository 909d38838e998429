// Reads the rows of a file, groups them by probe and instruction, and compares the answers with the hypotheses.
#include "bench/vectors/probe_vectors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "bench/vectors/csv.h"
#include "bench/vectors/hex_digits.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"

namespace halfmark::bench {

namespace {

const std::vector<std::string> kColumns{"probe", "instruction", "fmt_a", "fmt_b", "fmt_c",
                                        "k",     "a",           "b",     "c",     "predictions"};
enum ProbeColumn : size_t { kProbe, kInstruction, kFormatA, kFormatB, kFormatC, kDepth, kA, kB, kC, kPredictions };

struct Hypothesis {
  std::string name;
  uint64_t code;
};

struct VectorRow {
  std::string probe, instruction;
  DType a = DType::f32, b = DType::f32, c = DType::f32, d = DType::f32;
  int64_t k = 0;
  std::vector<uint64_t> a_codes, b_codes, scale_a, scale_b;
  uint64_t c_code = 0;
  std::vector<Hypothesis> hypotheses;
};

std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, mark);) parts.push_back(part);
  return parts;
}

DType dtype_of(std::string_view format) { return format == "tf32" ? DType::f32 : dtype_named(format); }
std::vector<uint64_t> codes_of(std::string_view text, size_t digits) {
  std::vector<uint64_t> codes;
  for (size_t i = 0; i < text.size(); i += digits) {
    uint64_t code = 0;
    const std::string_view part = text.substr(i, digits);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), code, 16);
    HM_CHECK(error == std::errc() && part.size() == digits && end == part.data() + digits,
             fmt::format("'{}' is not a sequence of codes of {} hex digits", text, digits));
    codes.push_back(code);
  }
  return codes;
}

VectorRow row_of(const CsvReader& reader) {
  VectorRow row;
  row.probe = reader.field(kProbe), row.instruction = reader.field(kInstruction);
  row.a = dtype_of(reader.field(kFormatA)), row.b = dtype_of(reader.field(kFormatB));
  row.c = dtype_of(reader.field(kFormatC));
  reader.hex_list(kA, hex_digits(row.a), row.a_codes), reader.hex_list(kB, hex_digits(row.b), row.b_codes);
  row.k = static_cast<int64_t>(row.a_codes.size());
  if (reader.field(kDepth) != std::to_string(row.k) || row.b_codes.size() != row.a_codes.size())
    reader.fail(kDepth, fmt::format("but there are {} and {} codes", row.a_codes.size(), row.b_codes.size()));
  row.c_code = reader.hex(kC, hex_digits(row.c));
  for (const std::string& prediction : split(reader.field(kPredictions), ';')) {
    const size_t equals = prediction.find('=');
    if (equals == std::string::npos) reader.fail(kPredictions, "is not of the form hypothesis=code;hypothesis=code");
    const std::string name = prediction.substr(0, equals), value = prediction.substr(equals + 1);
    if (name == "scale_a") {
      row.scale_a = codes_of(value, 2);
    } else if (name == "scale_b") {
      row.scale_b = codes_of(value, 2);
    } else {
      if (value.size() != 4 && value.size() != 8)
        reader.fail(kPredictions, "predicts a code that is neither f16 nor f32");
      row.d = value.size() == 4 ? DType::f16 : DType::f32;
      row.hypotheses.push_back({name, codes_of(value, value.size()).front()});
    }
  }
  if (row.hypotheses.empty()) reader.fail(kPredictions, "names no hypothesis");
  return row;
}

std::vector<VectorRow> rows_of(const std::string& path) {
  std::ifstream file(path);
  HM_CHECK(file, path + ": cannot be opened");
  std::vector<VectorRow> rows;
  size_t line = 1;
  try {
    CsvReader reader(file, kColumns);
    while (reader.next()) {
      line = reader.line();
      rows.push_back(row_of(reader));
    }
  } catch (const Error& error) {
    const std::string what = error.what();
    throw Error(what.starts_with("line ") ? fmt::format("{}: {}", path, what)
                                          : fmt::format("{}: line {}: {}", path, line, what));
  }
  return rows;
}

// True if the GPUs that a row names include the simulated one: "ampere/ada mma...", "any mma...".
bool is_about(const std::string& instruction, const Device& device) {
  if (!device.name().starts_with("sim:")) return true;  // for a real GPU, its instructions decide
  constexpr std::string_view kNames[] = {"volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-rtx"};
  const std::string own = device.name().substr(4), about = instruction.substr(0, instruction.find(' '));
  if (instruction.starts_with("ampere..blackwell")) return own != "volta" && own != "turing";
  if (about == "sm_120") return own.starts_with("blackwell");
  bool any = false, ours = false;
  for (const std::string& name : split(about, '/'))
    for (const std::string_view known : kNames)
      any = any || name == known, ours = ours || (name == own || (name == "blackwell" && own == "blackwell-rtx"));
  return ours || !any;
}

// The instructions that the text of a row refers to: by shape, or by family and K.
bool means(const std::string& text, const MatrixInstructionRow& instruction, int64_t k) {
  if (text.find(instruction.name) != std::string::npos) return true;
  const std::string family(instruction.name.substr(0, instruction.name.find('.')));
  if (family == "mma") return text.find(" mma f") != std::string::npos && k % instruction.k == 0;
  return text.find(family) != std::string::npos && k == instruction.k;
}

Tensor tensor_of(Device& device, Shape shape, DType dtype, const std::vector<uint64_t>& codes) {
  std::vector<unsigned char> bytes(bytes_for(dtype, codes.size()));
  for (size_t i = 0; i < codes.size(); ++i) store_code(dtype, bytes.data(), i, codes[i]);
  Tensor tensor(device, shape, dtype);
  device.copy_in(tensor.data(), bytes.data(), bytes.size());
  tensor.touch();
  return tensor;
}

// The code of d; nullopt if the device has no such instruction.
std::optional<uint64_t> answer(Device& device, const VectorRow& row, MatrixInstruction instruction) {
  const DType scale = row.instruction.find("ue4m3") != std::string::npos ? DType::e4m3 : DType::e8m0;
  const auto blocks = static_cast<int64_t>(row.scale_a.size());
  const Tensor a = tensor_of(device, {1, row.k}, row.a, row.a_codes),
               b = tensor_of(device, {1, row.k}, row.b, row.b_codes);
  const Tensor scale_a = blocks ? tensor_of(device, {1, blocks}, scale, row.scale_a) : Tensor(),
               scale_b = blocks ? tensor_of(device, {1, blocks}, scale, row.scale_b) : Tensor();
  const Tensor c = tensor_of(device, {1}, row.c, {row.c_code});
  Tensor out = Tensor::zeros(device, {1}, row.d);
  try {
    run(DotProducts{a, b, scale_a, scale_b, c, out, instruction});
  } catch (const Unsupported&) {
    return {};
  }
  return load_code(row.d, out.codes().data(), 0);
}

struct Group {
  std::string probe, instruction, ran;
  size_t rows = 0, unforeseen = 0;
  std::vector<std::string> hypotheses, alive;
};

}  // namespace

std::string probe_vectors(Device& device, const std::string& path, const TextOptions& options) {
  std::vector<Group> groups;
  size_t left_out = 0;
  for (const VectorRow& row : rows_of(path)) {
    size_t ran = 0;
    if (is_about(row.instruction, device))
      for (const MatrixInstructionRow& instruction : matrix_instructions()) {
        if (!means(row.instruction, instruction, row.k)) continue;
        const auto code = answer(device, row, instruction.instruction);
        if (!code) continue;
        ++ran;
        auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
          return g.probe == row.probe && g.instruction == row.instruction && g.ran == instruction.name;
        });
        if (group == groups.end()) {
          Group fresh{row.probe, row.instruction, std::string(instruction.name), 0, 0, {}, {}};
          for (const Hypothesis& h : row.hypotheses) fresh.hypotheses.push_back(h.name);
          fresh.alive = fresh.hypotheses;
          group = groups.insert(groups.end(), fresh);
        }
        ++group->rows;
        bool foreseen = false;
        for (const Hypothesis& h : row.hypotheses) {
          foreseen = foreseen || h.code == *code;
          if (h.code != *code) std::erase(group->alive, h.name);
        }
        group->unforeseen += foreseen ? 0 : 1;
      }
    left_out += ran == 0 ? 1 : 0;
  }
  std::string text;
  if (!device.numerics().empty())
    text += wrapped("",
                    fmt::format("{} is a model: the hypotheses below show what the model assumes, not what a GPU does.",
                                device.name()),
                    options.width) +
            "\n";
  Table table({"probe", "written for", "run on", "rows", "consistent"}, 3);
  for (const Group& group : groups)
    table.add(
        {{group.probe, Tone::plain},
         {group.instruction, Tone::plain},
         {group.ran, Tone::plain},
         {fmt::format("{}", group.rows), Tone::plain},
         {group.alive.empty()
              ? fmt::format(
                    "none of {}{}", group.hypotheses.size(),
                    group.unforeseen ? fmt::format("; {} answers that no hypothesis predicts", group.unforeseen) : "")
              : fmt::format("{} of {}", fmt::join(group.alive, ", "), group.hypotheses.size()),
          group.alive.empty() ? Tone::bad : Tone::good}});
  if (!groups.empty()) text += table.text(options);
  return text + fmt::format("{} rows of {} are for other GPUs than {}\n", left_out, path, device.name());
}

}  // namespace halfmark::bench
