#pragma once

// Sixteen float lanes in two ymm registers; see vec_avx512.h. Included by isa_avx2.cc only. bf16
// pairs are widened to float and multiplied with two FMAs, k before k + 1.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

constexpr int kTileRows = 4;  // 4 x 1 x 2 accumulators, 4 widened weights, 2 broadcasts of 16
constexpr int kStripVecs = 1;
constexpr bool kPrefetchWeights = false;
constexpr int kInt4Rows = 0;
constexpr int kBlockRows = 2, kBlockStripVecs = 1, kWideBlockRows = 0;

struct Vec {
  __m256 a, b;
};
struct Units {
  __m256i a, b;
};

inline Vec Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline Vec LoadN(const float* p, int64_t n) {
  float lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return Load(lanes);
}
inline void StoreN(float* p, Vec x, int64_t n) {
  float lanes[16];
  Store(lanes, x);
  memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

inline __m256 Widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
inline Vec Load(const uint16_t* p) {
  return {Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Vec LoadN(const uint16_t* p, int64_t n) {
  uint16_t lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return Load(lanes);
}
// Nearest, ties to even; NaN stays NaN.
inline __m256i Narrow(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, nan, is_nan);
}
inline void Store(uint16_t* p, Vec x) {
  const __m256i packed = _mm256_packus_epi32(Narrow(x.a), Narrow(x.b));  // a0 b0 a1 b1
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void StoreN(uint16_t* p, Vec x, int64_t n) {
  uint16_t lanes[16];
  Store(lanes, x);
  memcpy(p, lanes, static_cast<size_t>(n) * sizeof(uint16_t));
}
inline void StoreExactN(uint16_t* p, Vec x, int64_t n) { StoreN(p, x, n); }

inline Vec Add(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Vec Sub(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Vec Mul(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Vec Div(Vec x, Vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Vec Fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Vec Max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Vec Min(Vec x, Vec y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Vec RoundToInt(Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
}
inline __m256 Pow2Half(__m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline Vec TimesPow2(Vec p, Vec n) {
  return {_mm256_mul_ps(p.a, Pow2Half(n.a)), _mm256_mul_ps(p.b, Pow2Half(n.b))};
}
inline Vec SelectLess(Vec p, Vec q, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ))};
}
inline Vec KeepLanes(Vec x, int begin, int end, Vec other) {
  float lanes[16];
  float rest[16];
  Store(lanes, x);
  Store(rest, other);
  for (int i = 0; i < 16; ++i) {
    if (i < begin || i >= end) lanes[i] = rest[i];
  }
  return Load(lanes);
}
inline float ReduceAdd(Vec x) {
  __m256 sum = _mm256_add_ps(x.a, x.b);
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
inline float ReduceMax(Vec x) {
  __m256 max = _mm256_max_ps(x.a, x.b);
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

inline Units LoadUnits(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
// out[u * kTileRows + r] = unit u of row r, for the eight units of a half.
inline void StoreInterleaved(__m256i r0, __m256i r1, __m256i r2, __m256i r3, uint32_t* out) {
  const __m256i low01 = _mm256_unpacklo_epi32(r0, r1), high01 = _mm256_unpackhi_epi32(r0, r1);
  const __m256i low23 = _mm256_unpacklo_epi32(r2, r3), high23 = _mm256_unpackhi_epi32(r2, r3);
  const __m256i units04 = _mm256_unpacklo_epi64(low01, low23);
  const __m256i units15 = _mm256_unpackhi_epi64(low01, low23);
  const __m256i units26 = _mm256_unpacklo_epi64(high01, high23);
  const __m256i units37 = _mm256_unpackhi_epi64(high01, high23);
  auto* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(units04, units15, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(units26, units37, 0x20));
  _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(units04, units15, 0x31));
  _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(units26, units37, 0x31));
}
inline void StoreInterleaved(const Units (&rows)[kTileRows], uint32_t* out) {
  StoreInterleaved(rows[0].a, rows[1].a, rows[2].a, rows[3].a, out);
  StoreInterleaved(rows[0].b, rows[1].b, rows[2].b, rows[3].b, out + 8 * kTileRows);
}
inline void TransposePairs(const uint32_t* rows, uint32_t* out, int64_t stride) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int t = 0; t < 32; t += 8, out += 4 * stride) {
    for (int r = 0; r < 8; r += 4) {  // four rows by four pairs of tokens
      __m256i x[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const auto* from = reinterpret_cast<const __m256i*>(rows + (r + j) * 32 + t);
        x[j] = _mm256_shuffle_epi8(_mm256_loadu_si256(from), order);
      }
      const __m256i low01 = _mm256_unpacklo_epi64(x[0], x[1]);
      const __m256i high01 = _mm256_unpackhi_epi64(x[0], x[1]);
      const __m256i low23 = _mm256_unpacklo_epi64(x[2], x[3]);
      const __m256i high23 = _mm256_unpackhi_epi64(x[2], x[3]);
      const auto store = [&](int pair, __m256i units) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + pair * stride + 2 * r), units);
      };
      store(0, _mm256_permute2x128_si256(low01, low23, 0x20));
      store(1, _mm256_permute2x128_si256(high01, high23, 0x20));
      store(2, _mm256_permute2x128_si256(low01, low23, 0x31));
      store(3, _mm256_permute2x128_si256(high01, high23, 0x31));
    }
  }
}
inline Units TakeUnits(const uint32_t* units, Units index) {
  const auto* from = reinterpret_cast<const int*>(units);
  return {_mm256_i32gather_epi32(from, index.a, 4), _mm256_i32gather_epi32(from, index.b, 4)};
}
inline Units AndUnits(Units x, uint32_t mask) {
  const __m256i m = _mm256_set1_epi32(static_cast<int>(mask));
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}

struct Bf16Type {
  using Element = uint16_t;
  static constexpr int kStep = 2;
  struct Broadcast {
    __m256 first, second;
  };
  static __m256 First(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static __m256 Second(__m256i pairs) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static Broadcast Spread(const uint32_t* unit) {
    int pair;
    memcpy(&pair, unit, sizeof(pair));
    const __m256i pairs = _mm256_set1_epi32(pair);
    return {First(pairs), Second(pairs)};
  }
  static Vec Dot(Vec sum, Broadcast a, Units w) {
    sum.a = _mm256_fmadd_ps(a.first, First(w.a), sum.a);
    sum.b = _mm256_fmadd_ps(a.first, First(w.b), sum.b);
    sum.a = _mm256_fmadd_ps(a.second, Second(w.a), sum.a);
    sum.b = _mm256_fmadd_ps(a.second, Second(w.b), sum.b);
    return sum;
  }
};

struct F32Type {
  using Element = float;
  static constexpr int kStep = 1;
  using Broadcast = __m256;
  static Broadcast Spread(const uint32_t* unit) {
    float value;
    memcpy(&value, unit, sizeof(value));
    return _mm256_set1_ps(value);
  }
  static Vec Dot(Vec sum, Broadcast a, Units w) {
    return {_mm256_fmadd_ps(a, _mm256_castsi256_ps(w.a), sum.a),
            _mm256_fmadd_ps(a, _mm256_castsi256_ps(w.b), sum.b)};
  }
};

// Bytes are widened to 16 bits, where no sum of two products overflows.
struct Int8Type {
  static constexpr int kStep = 4;
  struct Broadcast {
    __m256i even, odd;
  };
  static Broadcast Spread(const uint32_t* unit) {
    int bytes;
    memcpy(&bytes, unit, sizeof(bytes));
    const __m256i all = _mm256_set1_epi32(bytes);
    return {_mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8), _mm256_srai_epi16(all, 8)};
  }
  static __m256 DotHalf(__m256 sum, const Broadcast& a, __m256i w) {
    const __m256i even = _mm256_and_si256(w, _mm256_set1_epi16(0xff));
    const __m256i odd = _mm256_srli_epi16(w, 8);
    const __m256i products =
        _mm256_add_epi32(_mm256_madd_epi16(even, a.even), _mm256_madd_epi16(odd, a.odd));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum), products));
  }
  static Vec Dot(Vec sum, const Broadcast& a, Units w) {
    return {DotHalf(sum.a, a, w.a), DotHalf(sum.b, a, w.b)};
  }
};

inline Vec FromInts(Vec x, int32_t offset) {
  const __m256i o = _mm256_set1_epi32(offset);
  return {_mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_castps_si256(x.a), o)),
          _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_castps_si256(x.b), o))};
}
inline __m256 MaxAbsBitsHalf(__m256 max, __m256 x) {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(max), bits));
}
inline Vec MaxAbsBits(Vec max, Vec x) {
  return {MaxAbsBitsHalf(max.a, x.a), MaxAbsBitsHalf(max.b, x.b)};
}
inline void StoreBytes(int8_t* p, Vec x) {
  const __m256i words =  // a0 b0 a1 b1
      _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}

inline Vec LoadBytes(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

struct Int4Groups {
  Units factor, base;
};
inline void LoadInt4GroupsHalf(const uint8_t* p, __m256i* factor, __m256i* base) {
  const __m256i bits = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i low = _mm256_and_si256(bits, _mm256_set1_epi32(15));
  const __m256i product = _mm256_mullo_epi16(_mm256_srli_epi32(bits, 4), low);
  *factor = _mm256_or_si256(low, _mm256_slli_epi32(low, 16));
  const __m256i splat = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                          0x08080808, 0x0c0c0c0c);
  *base = _mm256_shuffle_epi8(_mm256_sub_epi32(_mm256_set1_epi32(128), product), splat);
}
inline Int4Groups LoadInt4Groups(const uint8_t* p) {
  Int4Groups groups;
  LoadInt4GroupsHalf(p, &groups.factor.a, &groups.base.a);
  LoadInt4GroupsHalf(p + 8, &groups.factor.b, &groups.base.b);
  return groups;
}
inline __m256i ScaledHalf(__m256i codes, __m256i factor, __m256i base) {
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi8(15));
  return _mm256_add_epi8(_mm256_mullo_epi16(low, factor), base);
}
inline Units LowCodes(Units codes, const Int4Groups& groups) {
  return {ScaledHalf(codes.a, groups.factor.a, groups.base.a),
          ScaledHalf(codes.b, groups.factor.b, groups.base.b)};
}
inline Units HighCodes(Units codes, const Int4Groups& groups) {
  return LowCodes({_mm256_srli_epi16(codes.a, 4), _mm256_srli_epi16(codes.b, 4)}, groups);
}
inline void StoreUnits(uint32_t* p, Units x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}

inline Units ShiftRight(Units x, int bits) {
  return {_mm256_srli_epi32(x.a, bits), _mm256_srli_epi32(x.b, bits)};
}
inline Units ShiftLeft(Units x, int bits) {
  return {_mm256_slli_epi32(x.a, bits), _mm256_slli_epi32(x.b, bits)};
}
inline Units OrUnits(Units x, Units y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
inline Units LookUp(Units codes, const uint8_t* table) {
  const __m256i entries =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(entries, codes.a), _mm256_shuffle_epi8(entries, codes.b)};
}
inline Units AddUnits(Units x, Units y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline Units UnitsOf(Vec x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline Vec FloatsOf(Units x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline Vec LookUpFloats(Units x, const float* table) {
  const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
  const auto entries = [&](__m256i index) {
    // Bit 3 chooses the half: blendv looks at the sign.
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                            _mm256_permutevar8x32_ps(high, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  };
  return {entries(x.a), entries(x.b)};
}
inline Vec ExactFma(Vec x, Vec y, Vec z) { return Fma(x, y, z); }
inline Vec SetInt(int32_t x) {
  const __m256 lanes = _mm256_castsi256_ps(_mm256_set1_epi32(x));
  return {lanes, lanes};
}
inline float ReduceMaxBits(Vec x) {
  const __m256i max = _mm256_max_epu32(_mm256_castps_si256(x.a), _mm256_castps_si256(x.b));
  __m128i half = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(half));
}
// Exponents are moved by a product, which is right for denormals too; infinities and NaN are not
// numbers that a product moves.
inline __m256 HalvesToFloats(__m128i halves) {
  const __m256i bits = _mm256_cvtepu16_epi32(halves);
  const __m256i magnitude =
      _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fff)), 13);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x8000)), 16);
  const __m256 moved = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p112f));
  const __m256i is_special = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((0x7c00 << 13) - 1));
  const __m256i special = _mm256_and_si256(is_special, _mm256_set1_epi32(0x7f800000));
  return _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_or_si256(_mm256_castps_si256(moved), special), sign));
}
inline Vec LoadHalves(const uint16_t* p) {
  return {HalvesToFloats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          HalvesToFloats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Units WidenBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Units SignExtendBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
// Unit i: bf16 of even[i] below that of odd[i].
inline Units Bf16Pairs(Vec even, Vec odd) {
  return {_mm256_or_si256(Narrow(even.a), _mm256_slli_epi32(Narrow(odd.a), 16)),
          _mm256_or_si256(Narrow(even.b), _mm256_slli_epi32(Narrow(odd.b), 16))};
}
inline Vec LoadUnsignedBytes(const uint8_t* p) {
  const Units bytes = WidenBytes(p);
  return {_mm256_cvtepi32_ps(bytes.a), _mm256_cvtepi32_ps(bytes.b)};
}
inline __m256 PowersOfHalf(__m256i bytes) {
  const __m256i half = _mm256_srli_epi32(bytes, 1), bias = _mm256_set1_epi32(127 - 64);
  const __m256i first = _mm256_add_epi32(half, bias);
  const __m256i second = _mm256_add_epi32(_mm256_sub_epi32(bytes, half), bias);
  return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(first, 23)),
                       _mm256_castsi256_ps(_mm256_slli_epi32(second, 23)));
}
inline Vec LoadPowers(const uint8_t* p) {
  const Units bytes = WidenBytes(p);
  return {PowersOfHalf(bytes.a), PowersOfHalf(bytes.b)};
}

}  // namespace
}  // namespace tandem
