// How the loops of an instruction set walk through an array, shared by all instruction sets. The including file defines
// HM_VECTOR_CALL (the attributes of a function of that set). In an unnamed namespace of convert_detail it also defines
// kLanes, kGroup, Constants with constants_of(), and round_group(), which rounds kGroup vectors.
// No include guard: each instruction set's file includes it once.

static_assert(kRoundStep % (kGroup * kLanes) == 0 && kLine % kLanes == 0);

template <Kind kind, Rounding rounding, bool stream>
HM_VECTOR_CALL void round_loop(const Target& to, const float* source, float* target, size_t count, NoiseStream noise) {
  const Constants constants = constants_of(to);
  size_t i = 0;
  for (; i + kTile <= count; i += kTile)
    for (size_t j = i; j < i + kPage; j += kLine)
      for (size_t k = j; k < j + kTile; k += kGroup * kPage)
        if constexpr (kLanes == kLine)
          round_group<kind, rounding, stream>(to, constants, source + k, target + k, kPage, noise.from(k));
        else
          for (size_t part = k; part < k + kLine; part += kLanes)
            round_group<kind, rounding, stream>(to, constants, source + part, target + part, kPage, noise.from(part));
  for (; i < count; i += kGroup * kLanes)
    round_group<kind, rounding, stream>(to, constants, source + i, target + i, kLanes, noise.from(i));
  if constexpr (stream) _mm_sfence();
}

template <Kind kind, Rounding rounding>
void round_stored(const Target& to, const float* source, float* target, size_t count, NoiseStream noise, bool stream) {
  if (stream)
    round_loop<kind, rounding, true>(to, source, target, count, noise);
  else
    round_loop<kind, rounding, false>(to, source, target, count, noise);
}

template <Rounding rounding>
void round_kind(const Target& to, const float* source, float* target, size_t count, NoiseStream noise, bool stream) {
  constexpr bool kConverts = rounding == Rounding::near_even || rounding == Rounding::toward_zero;
  if (to.wide)
    round_stored<Kind::wide, rounding>(to, source, target, count, noise, stream);
  else if (kConverts && to.format == kFp16)
    round_stored<kConverts ? Kind::half : Kind::narrow, rounding>(to, source, target, count, noise, stream);
  else
    round_stored<Kind::narrow, rounding>(to, source, target, count, noise, stream);
}

void round(const Target& to, Rounding rounding, const float* source, float* target, size_t count, NoiseStream noise,
           bool stream) {
  switch (rounding) {
    case Rounding::near_even:
      return round_kind<Rounding::near_even>(to, source, target, count, noise, stream);
    case Rounding::toward_zero:
      return round_kind<Rounding::toward_zero>(to, source, target, count, noise, stream);
    case Rounding::near_away:
      return round_kind<Rounding::near_away>(to, source, target, count, noise, stream);
    case Rounding::stochastic:
      return round_kind<Rounding::stochastic>(to, source, target, count, noise, stream);
  }
}
