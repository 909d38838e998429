// The check of a device. Few different problems are repeated at many places, so that the host, which computes the known
// results, does not limit how much of the device is checked.
#include "accuracy/probe/known_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/tensor/random.h"

namespace halfmark::accuracy::probe {
namespace {

using Bytes = std::vector<unsigned char>;

std::string hex(DType dtype, const unsigned char* codes, size_t index) {
  return fmt::format("{:0{}x}", load_code(dtype, codes, index), (bits_of(dtype) + 3) / 4);
}
std::string hex_of_values(DType dtype, std::span<const double> values) {
  std::string text;
  for (const double value : values) text += fmt::format("{:0{}x}", encode(dtype, value), (bits_of(dtype) + 3) / 4);
  return text;
}
std::string hex_row(const Tensor& tensor, size_t row) {
  const Bytes codes = tensor.codes();
  const auto columns = static_cast<size_t>(tensor.elements() / tensor.shape()[0]);
  std::string text;
  for (size_t i = 0; i < columns; ++i) text += hex(tensor.dtype(), codes.data(), row * columns + i);
  return text;
}

// The rows of `few`, repeated from the first on until there are `rows`.
Tensor repeated(const Tensor& few, int64_t rows) {
  if (few.empty()) return {};
  std::vector<int64_t> shape(few.shape().extents().begin(), few.shape().extents().end());
  const Bytes codes = few.codes();
  const size_t row = codes.size() / static_cast<size_t>(shape[0]);
  HM_CHECK(row * static_cast<size_t>(shape[0]) == codes.size(), "a row does not fill whole bytes");
  Bytes all(row * static_cast<size_t>(rows));
  for (size_t at = 0; at < all.size(); at += codes.size())
    std::memcpy(&all[at], codes.data(), std::min(codes.size(), all.size() - at));
  shape[0] = rows;
  Tensor many(few.device(), Shape(shape), few.dtype());
  many.set_codes(all);
  return many;
}

class Check {
 public:
  virtual ~Check() = default;
  virtual CheckedSubject& counts() = 0;
  // One round of problems drawn from `seed`. `stop` is asked after each launch.
  virtual void check(uint64_t seed, DeviceCheck& report, size_t listed, const std::function<bool()>& stop) = 0;
};

constexpr int kLaunches = 8;  // of the same problems in one round

// A matrix instruction. The simulated row gives the known results.
class InstructionCheck : public Check {
 public:
  InstructionCheck(Device& device, std::shared_ptr<Device> simulated, const DotChoice& choice, int64_t problems,
                   CheckedSubject& counts)
      : device_(device), simulated_(std::move(simulated)), choice_(choice), problems_(problems), counts_(counts) {}
  CheckedSubject& counts() override { return counts_; }

  void check(uint64_t seed, DeviceCheck& report, size_t listed, const std::function<bool()>& stop) override {
    // Two instructions, so that the addition between them is checked too.
    const size_t k = 2 * least_depth(choice_);
    const std::vector<Question> questions = random_questions(dot_box(device_, choice_, k), kDifferent, seed);
    const BlackBox known = dot_box(*simulated_, choice_, k);
    const std::vector<uint64_t> expected = known.answers(questions);
    const DotOperands few = dot_operands(device_, choice_, questions);
    const Tensor a = repeated(few.a, problems_), b = repeated(few.b, problems_), c = repeated(few.c, problems_),
                 scale_a = repeated(few.scale_a, problems_), scale_b = repeated(few.scale_b, problems_);
    const size_t size = size_of(choice_.d);
    Bytes pattern(kDifferent * size);
    for (size_t i = 0; i < kDifferent; ++i)
      std::memcpy(&pattern[i * size], &expected[i], size);  // little-endian hosts only
    for (int launch = 0; launch < kLaunches; ++launch) {
      Tensor out(device_, {problems_}, choice_.d), multiprocessors = Tensor::zeros(device_, {problems_}, DType::i32);
      multiprocessors.fill(-1);
      run(DotProducts{a, b, scale_a, scale_b, c, out, choice_.instruction, &multiprocessors});
      const Bytes got = out.codes();
      counts_.results += static_cast<uint64_t>(problems_);
      std::vector<double> places;  // read when the first wrong result is found
      for (size_t at = 0; at < got.size(); at += pattern.size()) {
        const size_t bytes = std::min(pattern.size(), got.size() - at);
        if (std::memcmp(&got[at], pattern.data(), bytes) == 0) continue;
        for (size_t i = 0; i < bytes / size; ++i)
          if (std::memcmp(&got[at + i * size], &pattern[i * size], size) != 0) {
            if (places.empty()) places = multiprocessors.values();
            report_wrong(report, listed, got, at / size + i, i, pattern, few, places);
          }
      }
      if (stop()) return;
    }
  }

 private:
  static constexpr size_t kDifferent = 256;

  void report_wrong(DeviceCheck& report, size_t listed, const Bytes& got, size_t problem, size_t question,
                    const Bytes& pattern, const DotOperands& few, const std::vector<double>& places) {
    ++counts_.wrong;
    const auto where = static_cast<int64_t>(places[problem]);
    std::string place = fmt::format("problem {} of {}", problem, problems_);
    if (where >= 0) {
      ++report.wrong_on_multiprocessor[where];
      place += fmt::format(", multiprocessor {}", where);
    }
    if (report.wrong.size() >= listed) return;
    report.wrong.push_back({counts_.name, report.rounds, place, hex(choice_.d, pattern.data(), question),
                            hex(choice_.d, got.data(), problem), hex_row(few.a, question), hex_row(few.b, question),
                            hex_row(few.c, question)});
  }

  Device& device_;
  std::shared_ptr<Device> simulated_;
  DotChoice choice_;
  int64_t problems_;
  CheckedSubject& counts_;
};

// A matmul, whose rows and columns repeat.
class MatmulCheck : public Check {
 public:
  MatmulCheck(Device& device, const MatmulTypes& types, MatmulShape shape, BlackBox box, CheckedSubject& counts)
      : device_(device), types_(types), shape_(shape), box_(std::move(box)), counts_(counts) {}
  CheckedSubject& counts() override { return counts_; }

  // Takes a model found at another size, if it gives the results of this size too: for every pair of a row and a column, the
  // results at most of its places. Without a model, later results are compared with the first ones.
  bool take(const Model& model, const std::string& found_at, uint64_t seed) {
    const Problems problems = drawn(seed);
    const Bytes got = product(problems);
    const size_t n = static_cast<size_t>(shape_.n);
    for (size_t i = 0; i < kSide; ++i)
      for (size_t j = 0; j < kSide; ++j) {
        const uint64_t known = replay(model, {problems.rows[i], problems.columns[j], 0});
        size_t alike = 0, all = 0;
        for (size_t row = i; row < static_cast<size_t>(shape_.m); row += kSide)
          for (size_t column = j; column < n; column += kSide, ++all)
            alike += same_number(types_.d, load_code(types_.d, got.data(), row * n + column), known) ? 1 : 0;
        if (2 * alike <= all) return false;
      }
    model_ = model;
    counts_.expected = "the model that the probe found at " + found_at;
    return true;
  }

  void check(uint64_t seed, DeviceCheck& report, size_t listed, const std::function<bool()>& stop) override {
    const Problems problems = drawn(seed);
    const size_t size = size_of(types_.d);
    Bytes known = model_ ? modelled(problems) : product(problems);
    if (!model_ && stop()) return;
    for (int launch = 0; launch < kLaunches; ++launch) {
      const Bytes got = product(problems);
      const auto elements = got.size() / size;
      counts_.results += elements;
      if (std::memcmp(got.data(), known.data(), got.size()) != 0)
        for (size_t i = 0; i < elements; ++i) {
          const uint64_t x = load_code(types_.d, got.data(), i), y = load_code(types_.d, known.data(), i);
          if (!same_number(types_.d, x, y)) report_wrong(report, listed, problems, i, known, got);
        }
      if (stop()) return;
    }
  }

 private:
  static constexpr size_t kSide = 16;  // different rows and columns; as in random_questions

  struct Problems {
    std::vector<std::vector<double>> rows, columns;
    Tensor a, b;
  };

  Problems drawn(uint64_t seed) const {
    const std::vector<Question> questions = random_questions(box_, kSide * kSide, seed);
    Problems problems;
    const auto k = static_cast<size_t>(shape_.k), n = static_cast<size_t>(shape_.n);
    std::vector<double> few;
    for (size_t i = 0; i < kSide; ++i) {
      problems.rows.push_back(questions[i * kSide].a), problems.columns.push_back(questions[i].b);
      few.insert(few.end(), problems.rows.back().begin(), problems.rows.back().end());
    }
    problems.a = repeated(Tensor::from(device_, {static_cast<int64_t>(kSide), shape_.k}, types_.a, few), shape_.m);
    std::vector<double> b(k * n);
    for (size_t i = 0; i < k; ++i)
      for (size_t j = 0; j < n; ++j) b[types_.transpose_b ? j * k + i : i * n + j] = problems.columns[j % kSide][i];
    const Shape stored = types_.transpose_b ? Shape{shape_.n, shape_.k} : Shape{shape_.k, shape_.n};
    problems.b = Tensor::from(device_, stored, types_.b, b);
    return problems;
  }

  Bytes product(const Problems& problems) const {
    Tensor out(device_, {shape_.m, shape_.n}, types_.d);
    run(Matmul{.a = problems.a, .b = problems.b, .out = out, .transpose_b = types_.transpose_b, .math = types_.math});
    return out.codes();
  }

  Bytes modelled(const Problems& problems) const {
    const size_t size = size_of(types_.d), m = static_cast<size_t>(shape_.m), n = static_cast<size_t>(shape_.n);
    Bytes known(m * n * size);
    for (size_t i = 0; i < kSide; ++i) {
      for (size_t j = 0; j < kSide; ++j) {
        const uint64_t code = replay(*model_, {problems.rows[i], problems.columns[j], 0});
        for (size_t column = j; column < n; column += kSide) std::memcpy(&known[(i * n + column) * size], &code, size);
      }
      for (size_t row = i + kSide; row < m; row += kSide)
        std::memcpy(&known[row * n * size], &known[i * n * size], n * size);
    }
    return known;
  }

  void report_wrong(DeviceCheck& report, size_t listed, const Problems& problems, size_t element, const Bytes& known,
                    const Bytes& got) {
    ++counts_.wrong;
    if (report.wrong.size() >= listed) return;
    const size_t n = static_cast<size_t>(shape_.n), row = element / n, column = element % n;
    report.wrong.push_back({counts_.name, report.rounds, fmt::format("row {}, column {}", row, column),
                            hex(types_.d, known.data(), element), hex(types_.d, got.data(), element),
                            hex_of_values(types_.a, problems.rows[row % kSide]),
                            hex_of_values(types_.b, problems.columns[column % kSide]), ""});
  }

  Device& device_;
  MatmulTypes types_;
  MatmulShape shape_;
  BlackBox box_;
  std::optional<Model> model_;
  CheckedSubject& counts_;
};

// "sim:hopper" for a device that describes itself as sm_90; empty if no simulated device stands for it.
std::string simulation_of(const Device& device) {
  for (const auto& [name, value] : device.describe())
    if (name == "architecture") return simulated_device(value);
  return {};
}

// Multiples of 16, so that every row and column of the problems is at equally many places.
int64_t whole_tiles(int64_t extent) { return (extent + 15) / 16 * 16; }

}  // namespace

uint64_t DeviceCheck::results() const {
  uint64_t all = 0;
  for (const CheckedSubject& subject : subjects) all += subject.results;
  return all;
}
uint64_t DeviceCheck::wrong_results() const {
  uint64_t all = 0;
  for (const CheckedSubject& subject : subjects) all += subject.wrong;
  return all;
}

DeviceCheck check_device(Device& device, const CheckOptions& options, const CheckProgress& progress) {
  if (device.name().starts_with("sim:"))
    throw Unsupported(device.name() + " is a simulation; check compares hardware with it");
  DeviceCheck report;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  bool ended = false;
  const auto go_on = [&](const std::string& now) {
    elapsed();
    ended = ended || !progress(report, now);
    return !ended;
  };

  std::vector<DotChoice> choices;
  std::shared_ptr<Device> simulated;
  std::string simulation;
  if (options.instructions) {
    simulation = simulation_of(device);
    if (simulation.empty()) {
      report.not_checked.push_back("matrix instructions: no simulated device stands for this one");
    } else {
      simulated = open_device(simulation);
      for (const DotChoice& choice : dot_choices(device)) {
        const std::vector<DotChoice> known = dot_choices(*simulated);
        if (std::any_of(known.begin(), known.end(), [&](const DotChoice& one) { return one.name() == choice.name(); }))
          choices.push_back(choice);
        else
          report.not_checked.push_back(fmt::format("{}: {} has no such row", choice.name(), simulation));
      }
    }
  }
  std::vector<std::string> types;
  if (options.matmuls) types = options.types.empty() ? usual_types() : options.types;
  report.subjects.reserve(choices.size() + types.size());  // subjects refer to their counts

  std::vector<std::unique_ptr<Check>> subjects;
  for (const DotChoice& choice : choices) {
    report.subjects.push_back({choice.name(), simulation});
    subjects.push_back(
        std::make_unique<InstructionCheck>(device, simulated, choice, options.problems, report.subjects.back()));
  }
  const MatmulShape shape{whole_tiles(options.shape.m), whole_tiles(options.shape.n), options.shape.k};
  // A probe asks hundreds of questions, each a whole matmul, so only small sizes are examined.
  std::vector<MatmulShape> examined = {{32, 32, shape.k}};
  if (shape.m * shape.n <= 128 * 128) examined.push_back(shape);
  for (const std::string& name : types) {
    const std::string matmul = "matmul " + name;
    if (!go_on(matmul + ": probing")) break;
    try {
      const MatmulTypes parts = in_form_of_real_speed(device, matmul_types_named(name), shape);
      const BlackBox box = matmul_box(device, parts, examined[0]);
      report.subjects.push_back(
          {fmt::format("{} {}x{}x{}{}", matmul, shape.m, shape.n, shape.k, parts.transpose_b ? ", b transposed" : ""),
           "the device's own first results: no model of the probe gives them"});
      auto subject = std::make_unique<MatmulCheck>(device, parts, shape, box, report.subjects.back());
      for (const MatmulShape& at : examined) {
        RecordingBox recorder(matmul_box(device, parts, at));
        Options how;
        how.replays = 1000, how.match = false;
        const Report found = examine(recorder, how);
        const bool complete = found.model && found.replays > 0 && found.replayed == found.replays;
        if (complete && subject->take(*found.model, fmt::format("{}x{}x{}", at.m, at.n, at.k), options.seed)) break;
      }
      subjects.push_back(std::move(subject));
    } catch (const Unsupported& reason) {
      report.not_checked.push_back(fmt::format("{}: {}", matmul, reason.what()));
    }
  }

  const RandomKey seeds(options.seed);
  while (!ended && !subjects.empty() && (report.rounds == 0 || elapsed() < options.seconds)) {
    ++report.rounds;
    for (const auto& subject : subjects) {
      if (ended || (report.rounds > 1 && elapsed() >= options.seconds)) break;
      const auto stop = [&] {
        return !go_on(subject->counts().name) || (report.rounds > 1 && report.seconds >= options.seconds);
      };
      subject->check(seeds.child(report.rounds).value(), report, options.listed, stop);
    }
  }
  elapsed();
  subjects.clear();  // they refer to the counts
  std::erase_if(report.subjects, [&](const CheckedSubject& one) {
    if (one.results > 0) return false;
    report.not_checked.push_back(one.name + ": not reached before the check ended");
    return true;
  });
  return report;
}

}  // namespace halfmark::accuracy::probe
