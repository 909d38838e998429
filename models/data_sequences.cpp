// Drawn vectors and sequences: points, classified sequences of tokens, character text, and sound-like features with the
// symbols that they stand for.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "models/data_draw.h"

namespace halfmark::models::data_draw {
namespace {

RandomKey task(uint64_t number) { return RandomKey(number); }  // the same for every seed of a trial

// Words of 2 to 6 letters, and for each the four that may follow it.
constexpr uint64_t kWords = 48, kFollowers = 4;

int64_t letter(uint64_t word, uint64_t place) {  // 1 .. 26; 0 after the last
  const RandomKey key = task(0x686D74).child(word);
  return place < 2 + key.below(0, 5) ? static_cast<int64_t>(1 + key.below(1 + place, 26)) : 0;
}

}  // namespace

// Each class has two opposite prototype vectors: the seed changes the samples, not the task.
void point(int64_t width, int64_t label, RandomKey key, double* x) {
  const RandomKey prototype = task(0x686D70).child(static_cast<uint64_t>(label));
  const double sign = key.uniform(0) < 0.5 ? -1 : 1;
  double norm = 0;
  for (int64_t i = 0; i < width; ++i) norm += std::pow(prototype.normal(static_cast<uint64_t>(i)), 2);
  const double reach = 5 * sign / std::sqrt(norm);
  for (int64_t i = 0; i < width; ++i)
    x[i] = reach * prototype.normal(static_cast<uint64_t>(i)) + key.normal(static_cast<uint64_t>(i + 1));
}

// Six of ten tokens follow from the one before by the rule of the class. Of the others, half are from the class's own quarter
// of the alphabet, so that a bag of tokens says something, and the order says more.
void tokens(int64_t length, int64_t label, RandomKey key, double* x) {
  const RandomKey kind = key.child("kind"), other = key.child("other");
  auto token = static_cast<int64_t>(key.below(0, kTokenKinds));
  for (int64_t i = 0; i < length; ++i) {
    x[i] = static_cast<double>(token);
    const auto place = static_cast<uint64_t>(i);
    const uint64_t drawn = kind.below(place, 10);
    constexpr int64_t kQuarter = kTokenKinds / 4;
    if (drawn < 6)
      token = (5 * token + 9 * label + 7) % kTokenKinds;
    else if (drawn < 8)
      token = kQuarter * label + static_cast<int64_t>(other.below(place, kQuarter));
    else
      token = static_cast<int64_t>(other.below(place, kTokenKinds));
  }
}

void text(int64_t length, RandomKey key, double* x, double* next) {
  uint64_t word = key.below(0, kWords), place = key.below(1, 3), drawn = 2;
  for (int64_t i = 0; i <= length; ++i) {
    const int64_t character = letter(word, place++);
    if (i < length) x[i] = static_cast<double>(character);
    if (i > 0) next[i - 1] = static_cast<double>(character);
    if (character != 0) continue;
    word = task(0x686D74).child(word).child("next").below(key.below(drawn++, kFollowers), kWords);
    place = 0;
  }
}

void speech(int64_t features, int64_t length, int64_t classes, RandomKey key, double* x, double* target) {
  const int64_t most = most_symbols(length);
  const auto count = static_cast<int64_t>(1 + key.below(0, static_cast<uint64_t>(most)));
  target[0] = 0, target[1] = static_cast<double>(count);
  std::fill(target + 2, target + 2 + most, 0.0);
  std::vector<int64_t> frames(static_cast<size_t>(length), 0);  // the symbol of each; 0: silence
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto symbol = static_cast<int64_t>(
        1 + key.child("symbol").below(static_cast<uint64_t>(i), static_cast<uint64_t>(classes - 1)));
    target[2 + i] = static_cast<double>(symbol);
    // A symbol and the silence after it take at most the share of frames that all would have.
    const int64_t share = length / most, sound = std::max<int64_t>(1, share / 2);
    at += static_cast<int64_t>(
        key.child("gap").below(static_cast<uint64_t>(i), static_cast<uint64_t>(share - sound + 1)));
    for (int64_t k = 0; k < sound && at + k < length; ++k) frames[static_cast<size_t>(at + k)] = symbol;
    at += sound;
  }
  const RandomKey noise = key.child("noise");
  for (int64_t f = 0; f < features; ++f)
    for (int64_t t = 0; t < length; ++t) {
      const int64_t symbol = frames[static_cast<size_t>(t)];
      const double heard =
          symbol ? 2 * task(0x686D75).child(static_cast<uint64_t>(symbol)).normal(static_cast<uint64_t>(f)) : 0;
      x[f * length + t] = heard + 0.5 * noise.normal(static_cast<uint64_t>(f * length + t));
    }
}

void logits(int64_t elements, int64_t places, int64_t classes, RandomKey key, double* x, double* labels) {
  for (int64_t i = 0; i < elements; ++i) x[i] = key.normal(static_cast<uint64_t>(i));
  const RandomKey own = key.child("labels");
  for (int64_t i = 0; i < places; ++i)
    labels[i] = static_cast<double>(own.below(static_cast<uint64_t>(i), static_cast<uint64_t>(classes)));
}

void indices(int64_t length, int64_t count, RandomKey key, double* x) {
  for (int64_t i = 0; i < length; ++i)
    x[i] = static_cast<double>(key.below(static_cast<uint64_t>(i), static_cast<uint64_t>(count)));
}

}  // namespace halfmark::models::data_draw
