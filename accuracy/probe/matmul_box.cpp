// Black boxes of a device's matmul: a question is one element of a result of realistic size.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/probe/probe.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

uint64_t code_at(DType dtype, const std::vector<unsigned char>& bytes, size_t index) {
  return load_code(dtype, bytes.data(), index);
}

// Answers questions in matmuls of a fixed size: distinct a become rows, distinct b become columns, the rest is zero.
class MatmulRunner {
 public:
  MatmulRunner(Device& device, const MatmulTypes& types, MatmulShape shape)
      : device_(device), types_(types), shape_(shape) {}

  bool takes(double beta) const {
    const Tensor a = Tensor::zeros(device_, {shape_.m, shape_.k}, types_.a),
                 b = Tensor::zeros(device_, shape_of_b(), types_.b);
    Tensor out = Tensor::zeros(device_, {shape_.m, shape_.n}, types_.d);
    try {
      chosen(Matmul{.a = a, .b = b, .out = out, .transpose_b = types_.transpose_b, .math = types_.math, .beta = beta});
    } catch (const Unsupported&) {
      if (beta == 0) throw;
      return false;
    }
    return true;
  }

  // Of the row that would answer; nothing if every row refuses.
  std::optional<Speed> speed() const {
    const Tensor a = Tensor::zeros(device_, {shape_.m, shape_.k}, types_.a),
                 b = Tensor::zeros(device_, shape_of_b(), types_.b);
    Tensor out = Tensor::zeros(device_, {shape_.m, shape_.n}, types_.d);
    for (const double beta : {1.0, 0.0}) try {
        return chosen(Matmul{.a = a,
                             .b = b,
                             .out = out,
                             .transpose_b = types_.transpose_b,
                             .math = types_.math,
                             .beta = beta})
            .speed;
      } catch (const Unsupported&) {
      }
    return {};
  }

  std::vector<uint64_t> operator()(std::span<const Question> questions) {
    std::vector<uint64_t> codes(questions.size());
    for (size_t first = 0; first < questions.size();) first = call(questions, first, codes);
    return codes;
  }

  // Some libraries add the elements at the edges of their tiles in a different order. This returns the first element
  // that differs from element 0,0; from then on only element 0,0 is used.
  std::optional<size_t> find_other_element(std::span<const Question> questions) {
    for (const Question& question : questions) {
      const std::vector<uint64_t> codes = everywhere(question);
      const auto other = std::find_if(codes.begin(), codes.end(), [&](uint64_t code) { return code != codes[0]; });
      if (other == codes.end()) continue;
      rows_ = columns_ = 1;
      return static_cast<size_t>(other - codes.begin());
    }
    return {};
  }

 private:
  // The row or column that holds this vector: a new one if there is
  // room, else nullopt. Compared by bits because of NaNs and -0.
  using Places = std::map<std::string, size_t>;
  static std::optional<size_t> place(Places& places, const std::vector<double>& vector, int64_t room) {
    const std::string bits(reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(double));
    if (const auto found = places.find(bits); found != places.end()) return found->second;
    if (static_cast<int64_t>(places.size()) == room) return {};
    const size_t next = places.size();
    places.emplace(bits, next);
    return next;
  }

  Shape shape_of_b() const { return types_.transpose_b ? Shape{shape_.n, shape_.k} : Shape{shape_.k, shape_.n}; }

  size_t call(std::span<const Question> questions, size_t first, std::vector<uint64_t>& codes) {
    const auto m = static_cast<size_t>(shape_.m), n = static_cast<size_t>(shape_.n), k = static_cast<size_t>(shape_.k);
    Places rows, columns;
    std::vector<double> a(m * k), b(k * n), c(m * n);
    std::vector<bool> used(m * n);
    std::vector<size_t> cells;
    bool any_c = false;
    size_t q = first;
    for (; q < questions.size(); ++q) {
      const Question& question = questions[q];
      const auto row = place(rows, question.a, rows_), column = place(columns, question.b, columns_);
      if (!row || !column || used[*row * n + *column]) break;
      std::copy(question.a.begin(), question.a.end(), a.begin() + static_cast<long>(*row * k));
      for (size_t i = 0; i < k; ++i) b[types_.transpose_b ? *column * k + i : i * n + *column] = question.b[i];
      used[*row * n + *column] = true;
      cells.push_back(*row * n + *column);
      c[cells.back()] = question.c;
      any_c = any_c || question.c != 0 || std::signbit(question.c);
    }
    HM_CHECK(with_c_ || !any_c, "a question has c != 0, but this box takes no addend");
    const std::vector<unsigned char> bytes = product(a, b, c);
    for (size_t i = 0; i < cells.size(); ++i) codes[first + i] = code_at(types_.d, bytes, cells[i]);
    return q;
  }

  // The same question at every element.
  std::vector<uint64_t> everywhere(const Question& question) {
    const auto m = static_cast<size_t>(shape_.m), n = static_cast<size_t>(shape_.n);
    std::vector<double> a, b;
    for (size_t row = 0; row < m; ++row) a.insert(a.end(), question.a.begin(), question.a.end());
    if (types_.transpose_b)
      for (size_t column = 0; column < n; ++column) b.insert(b.end(), question.b.begin(), question.b.end());
    else
      for (const double x : question.b) b.insert(b.end(), n, x);
    const std::vector<unsigned char> bytes = product(a, b, std::vector<double>(m * n, question.c));
    std::vector<uint64_t> codes(m * n);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = code_at(types_.d, bytes, i);
    return codes;
  }

  std::vector<unsigned char> product(std::span<const double> a, std::span<const double> b, std::span<const double> c) {
    const Tensor left = Tensor::from(device_, {shape_.m, shape_.k}, types_.a, a),
                 right = Tensor::from(device_, shape_of_b(), types_.b, b);
    Tensor out = Tensor::from(device_, {shape_.m, shape_.n}, types_.d, c);
    // beta is set in every call or in none, so that one kernel of the device answers all questions.
    run(Matmul{.a = left,
               .b = right,
               .out = out,
               .transpose_b = types_.transpose_b,
               .math = types_.math,
               .beta = with_c_ ? 1.0 : 0.0});
    return out.codes();
  }

 public:
  bool with_c_ = false;

 private:
  Device& device_;
  MatmulTypes types_;
  MatmulShape shape_;
  int64_t rows_ = shape_.m, columns_ = shape_.n;  // the part of the result that answers questions
};

void check_shape(MatmulShape shape) {
  HM_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 1, "a shape to probe needs m, n >= 1 and k >= 2");
}

// The default accumulator for a result of this dtype.
Format accumulator_of(DType d) { return d == DType::f64 ? kFp64 : d == DType::f16 ? kFp16 : kFp32; }

}  // namespace

std::vector<uint64_t> RecordingBox::codes(std::vector<Question> questions) {
  std::vector<uint64_t> all = box_.answers(questions);
  // Limits the memory of a deep matmul: 2^24 numbers are 128 MiB.
  const size_t room = (size_t{1} << 23) / box_.k;
  for (size_t i = 0; i < all.size() && answers_.size() < room; ++i)
    answers_.push_back({std::move(questions[i]), all[i]});
  return all;
}

std::vector<double> RecordingBox::values(std::vector<Question> questions) {
  std::vector<double> all;
  for (const uint64_t code : codes(std::move(questions))) all.push_back(decode(box_.d_type, code));
  return all;
}

void RecordingBox::narrow_operands(int fraction_bits) {
  for (Format* format : {&box_.a, &box_.b})
    if (*format != kOne) *format = {"", format->exponent_bits, fraction_bits, format->specials};
}

std::optional<Term> term_of(const BlackBox& box, size_t leaf, double value) {
  const auto holds = [](const Format& format, double x) { return round_to(format, x) == x; };
  if (leaf == box.k) return box.takes_c && holds(box.c, value) ? std::optional<Term>({leaf, value, 0}) : std::nullopt;
  if (value == 0) return Term{leaf, 0, 1};
  int exponent = 0;
  const double digits = 2 * std::frexp(value, &exponent);  // in [1, 2), with the sign
  --exponent;
  std::optional<Term> found;
  const auto consider = [&](int right) {
    const double a = std::ldexp(digits, exponent - right), b = std::ldexp(1.0, right);
    if (!found && holds(box.a, a) && holds(box.b, b)) found = Term{leaf, a, b};
  };
  if (exponent >= box.a.min_exponent()) consider(0);
  // First both factors normal with b as close to one as possible; then any factors.
  for (int right = 1; right <= box.b.max_exponent(); ++right)
    if (exponent - right >= box.a.min_exponent()) consider(right);
  for (int right = -1; right >= box.b.min_exponent(); --right)
    if (exponent - right >= box.a.min_exponent()) consider(right);
  for (int right = box.b.min_exponent(); right >= box.b.min_subnormal_exponent(); --right) consider(right);
  return found;
}

Question question_of(const BlackBox& box, std::span<const Term> terms) {
  Question question{std::vector<double>(box.k, 0.0), std::vector<double>(box.k, 1.0), 0};
  for (const Term& term : terms) {
    if (term.leaf == box.k) {
      question.c = term.a;
      continue;
    }
    question.a[term.leaf] = term.a, question.b[term.leaf] = term.b;
  }
  return question;
}

MatmulTypes matmul_types_named(std::string_view name) {
  MatmulTypes types{std::string(name), DType::f32, DType::f32, DType::f32, {}, false};
  const std::string bad = fmt::format(
      "types '{}': write A>D or A*B>D, as in f16>f32, e4m3*e5m2>f32, tf32>f32, and "
      "+fast, +splitN or +splitN:FORMAT after it",
      name);
  std::string_view rest = name;
  const auto until = [&](char mark) {
    const size_t at = rest.find(mark);
    const std::string_view part = rest.substr(0, at);
    rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
    return part;
  };
  HM_CHECK(!name.ends_with('+'), bad);
  std::string_view formats = until('+'), options = rest;
  const size_t arrow = formats.find('>');
  HM_CHECK(arrow != std::string_view::npos, bad);
  const std::string_view operands = formats.substr(0, arrow), result = formats.substr(arrow + 1);
  const size_t star = operands.find('*');
  const auto dtype = [](std::string_view text) { return text == "tf32" ? DType::f32 : dtype_named(text); };
  types.a = dtype(operands.substr(0, star));
  types.b = star == std::string_view::npos ? types.a : dtype(operands.substr(star + 1));
  types.d = dtype_named(result);
  HM_CHECK(is_floating(types.a) && is_floating(types.b) && is_floating(types.d), bad);
  types.math.accumulate = types.math.partial = accumulator_of(types.d);
  types.math.multiply = types.a == DType::f64 ? kFp64 : operands.starts_with("tf32") ? kTf32 : kFp32;
  for (rest = options; !rest.empty();) {
    std::string_view option = until('+');
    if (option == "fast") {
      types.math.fast_accumulate = true;
    } else if (option == "wide") {  // narrow result, fp32 accumulator
      types.math.accumulate = types.math.partial = kFp32;
    } else if (option.starts_with("split")) {
      option.remove_prefix(5);
      const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), types.math.split_k);
      HM_CHECK(error == std::errc() && types.math.split_k > 0, bad);
      option.remove_prefix(static_cast<size_t>(end - option.data()));
      if (option.starts_with(":"))
        types.math.partial = format_named(option.substr(1));
      else
        HM_CHECK(option.empty(), bad);
    } else {
      throw Error(bad);
    }
  }
  return types;
}

std::vector<std::string> usual_types() {
  return {
      "f32>f32",  "tf32>f32",      "bf16>f32",      "bf16>bf16",          "f16>f32",  "f16>f16",       "f16>f16+wide",
      "e4m3>f32", "e4m3>f32+fast", "e4m3*e5m2>f32", "e4m3*e5m2>f32+fast", "e5m2>f32", "e5m2>f32+fast", "e4m3>f16",
      "f64>f64"};
}

MatmulTypes in_form_of_real_speed(Device& device, MatmulTypes types, MatmulShape shape) {
  check_shape(shape);
  MatmulTypes transposed = types;
  transposed.transpose_b = true;
  const std::optional<Speed> given = MatmulRunner(device, types, shape).speed();
  if (given == Speed::real || types.transpose_b) return types;
  const std::optional<Speed> other = MatmulRunner(device, transposed, shape).speed();
  return other == Speed::real || (other && !given) ? transposed : types;
}

BlackBox matmul_box(Device& device, const MatmulTypes& types, MatmulShape shape) {
  check_shape(shape);
  auto runner = std::make_shared<MatmulRunner>(device, types, shape);
  runner->takes(0);  // throws Unsupported with the reasons of all kernels
  runner->with_c_ = runner->takes(1);
  BlackBox box{device.name(),
               types.name,
               fmt::format("matmul {}x{}x{}{}", shape.m, shape.n, shape.k, types.transpose_b ? ", b transposed" : ""),
               format_of(types.a),
               format_of(types.b),
               format_of(types.d),
               format_of(types.d),
               types.d,
               runner->with_c_,
               static_cast<size_t>(shape.k),
               [runner](std::span<const Question> questions) { return (*runner)(questions); }};
  box.elements = kAlike;
  box.transpose_b = types.transpose_b;
  if (const auto other = runner->find_other_element(order_questions(box))) {
    const auto at = static_cast<int64_t>(*other);
    box.elements = fmt::format("{},{}", at / shape.n, at % shape.n);
    box.way += ", element 0,0";
  }
  return box;
}

}  // namespace halfmark::accuracy::probe
