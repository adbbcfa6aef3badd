#pragma once

// Sixteen float lanes in one zmm register. Included by isa_avx512_bf16.cc and isa_amx.cc:
// everything lives in an unnamed namespace, so that the linker cannot put a function compiled with
// these flags in place of another object's. The three vec_*.h have the same names; the code above
// them decides the lanes and the order of operations of an op, equal for full and partial vectors.

#include <immintrin.h>

#include <cstdint>

namespace tandem {
namespace {

constexpr int kTileRows = 6;   // 6 x 4 accumulators, 4 weights, 1 broadcast: 29 of 32 registers
constexpr int kStripVecs = 4;  // vectors of columns per strip of a tile
constexpr bool kPrefetchWeights = true;
constexpr int kInt4Rows = 8;  // most rows for which int4 weights are unpacked in registers
// Tiles of products with blocks, whose sums of a group and of all groups are both in registers: 6 x
// 2 columns of them, up to 3 rows all four.
constexpr int kBlockRows = 6, kBlockStripVecs = 2, kWideBlockRows = 3;

using Vec = __m512;
using Units = __m512i;

inline __mmask16 LaneMask(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }  // n <= 16

inline Vec Zero() { return _mm512_setzero_ps(); }
inline Vec Set1(float x) { return _mm512_set1_ps(x); }
inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec LoadN(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(LaneMask(n), p); }
inline void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
inline void StoreN(float* p, Vec x, int64_t n) { _mm512_mask_storeu_ps(p, LaneMask(n), x); }

inline Vec Load(const uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline Vec LoadN(const uint16_t* p, int64_t n) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(LaneMask(n), p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void Store(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x));
}
inline void StoreN(uint16_t* p, Vec x, int64_t n) {
  _mm256_mask_storeu_epi16(p, LaneMask(n), (__m256i)_mm512_cvtneps_pbh(x));
}
// As StoreN, and denormals stay.
inline void StoreExactN(uint16_t* p, Vec x, int64_t n) {
  const __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
  const __m512i even = _mm512_and_si512(upper, _mm512_set1_epi32(1));  // ties go there
  const __m512i up = _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i halves = _mm512_mask_blend_epi32(is_nan, rounded, quiet);
  _mm256_mask_storeu_epi16(p, LaneMask(n), _mm512_cvtepi32_epi16(halves));
}

inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }              // b when either is NaN
inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec RoundToInt(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// p 2^n for whole n in [-126, 127].
inline Vec TimesPow2(Vec p, Vec n) { return _mm512_scalef_ps(p, n); }
// Lane by lane: a < b ? x : y.
inline Vec SelectLess(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
// Lanes [begin, end) of x, other elsewhere; 0 <= begin, end <= 16.
inline Vec KeepLanes(Vec x, int begin, int end, Vec other) {
  const __mmask16 keep = LaneMask(end) & static_cast<__mmask16>(~LaneMask(begin));
  return _mm512_mask_blend_ps(keep, other, x);
}
inline float ReduceAdd(Vec x) { return _mm512_reduce_add_ps(x); }
inline float ReduceMax(Vec x) { return _mm512_reduce_max_ps(x); }

inline Units LoadUnits(const uint32_t* p) { return _mm512_loadu_si512(p); }
// out[u * kTileRows + r] = unit u of row r.
inline void StoreInterleaved(const Units (&rows)[kTileRows], uint32_t* out) {
  struct Tables {
    alignas(64) int32_t index[kTileRows][16];  // of output vector j: the unit, + 16 for odd rows
    __mmask16 rows23[kTileRows], rows45[kTileRows];
  };
  static constexpr Tables kTables = [] {
    Tables tables = {};
    for (int e = 0; e < 16 * kTileRows; ++e) {
      const int u = e / kTileRows, r = e % kTileRows, j = e / 16, lane = e % 16;
      tables.index[j][lane] = u + (r % 2) * 16;
      if (r / 2 == 1) tables.rows23[j] |= 1 << lane;
      if (r / 2 == 2) tables.rows45[j] |= 1 << lane;
    }
    return tables;
  }();
  for (int j = 0; j < kTileRows; ++j) {
    const Units index = _mm512_load_si512(kTables.index[j]);
    Units vec = _mm512_permutex2var_epi32(rows[0], index, rows[1]);
    vec = _mm512_mask_mov_epi32(vec, kTables.rows23[j],
                                _mm512_permutex2var_epi32(rows[2], index, rows[3]));
    vec = _mm512_mask_mov_epi32(vec, kTables.rows45[j],
                                _mm512_permutex2var_epi32(rows[4], index, rows[5]));
    _mm512_storeu_si512(out + j * 16, vec);
  }
}
// Eight rows of 32 tokens, whose units are pairs of numbers of a token, as sixteen rows of pairs of
// tokens: unit 2 r + h of row t is number h of the tokens 2 t and 2 t + 1 in row r.
inline void TransposePairs(const uint32_t* rows, uint32_t* out, int64_t stride) {
  // Of two tokens the first numbers, then the second ones.
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int half = 0; half < 2; ++half, out += 8 * stride) {
    __m512i even[4], odd[4];  // of rows 2 j and 2 j + 1 the pairs of tokens 0, 2, 4, 6; 1, 3, 5, 7
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const uint32_t* from = rows + j * 64 + half * 16;
      const __m512i a = _mm512_shuffle_epi8(_mm512_loadu_si512(from), order);
      const __m512i b = _mm512_shuffle_epi8(_mm512_loadu_si512(from + 32), order);
      even[j] = _mm512_unpacklo_epi64(a, b);
      odd[j] = _mm512_unpackhi_epi64(a, b);
    }
    const auto store = [&](const __m512i(&x)[4], int first) {
      const __m512i low02 = _mm512_shuffle_i64x2(x[0], x[1], 0x88);
      const __m512i low13 = _mm512_shuffle_i64x2(x[0], x[1], 0xdd);
      const __m512i high02 = _mm512_shuffle_i64x2(x[2], x[3], 0x88);
      const __m512i high13 = _mm512_shuffle_i64x2(x[2], x[3], 0xdd);
      uint32_t* to = out + first * stride;
      _mm512_storeu_si512(to, _mm512_shuffle_i64x2(low02, high02, 0x88));
      _mm512_storeu_si512(to + 2 * stride, _mm512_shuffle_i64x2(low13, high13, 0x88));
      _mm512_storeu_si512(to + 4 * stride, _mm512_shuffle_i64x2(low02, high02, 0xdd));
      _mm512_storeu_si512(to + 6 * stride, _mm512_shuffle_i64x2(low13, high13, 0xdd));
    };
    store(even, 0);
    store(odd, 1);
  }
}
// Units index[i] of 32, in lane i.
inline Units TakeUnits(const uint32_t* units, Units index) {
  return _mm512_permutex2var_epi32(LoadUnits(units), index, LoadUnits(units + 16));
}
inline Units AndUnits(Units a, uint32_t mask) {
  return _mm512_and_si512(a, _mm512_set1_epi32(static_cast<int>(mask)));
}

struct Bf16Type {
  using Element = uint16_t;
  static constexpr int kStep = 2;
  using Broadcast = __m512bh;
  static Broadcast Spread(const uint32_t* unit) {
    return (__m512bh)_mm512_set1_epi32(*reinterpret_cast<const int*>(unit));
  }
  static Vec Dot(Vec sum, Broadcast a, Units w) { return _mm512_dpbf16_ps(sum, a, (__m512bh)w); }
};

struct F32Type {
  using Element = float;
  static constexpr int kStep = 1;
  using Broadcast = __m512;
  static Broadcast Spread(const uint32_t* unit) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(unit));
  }
  static Vec Dot(Vec sum, Broadcast a, Units w) {
    return _mm512_fmadd_ps(a, _mm512_castsi512_ps(w), sum);
  }
};

// Four bytes of K per unit, unsigned weights times signed activations. The sums are int32 in the
// bits of a Vec.
struct Int8Type {
  static constexpr int kStep = 4;
  using Broadcast = __m512i;
  static Broadcast Spread(const uint32_t* unit) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(unit));
  }
  static Vec Dot(Vec sum, Broadcast a, Units w) {
    return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sum), w, a));
  }
};

// The int32 in the bits of x, plus offset, as floats.
inline Vec FromInts(Vec x, int32_t offset) {
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(offset)));
}
// The larger of max and |x|, compared as unsigned integers: infinity and NaN are above all.
inline Vec MaxAbsBits(Vec max, Vec x) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(max), bits));
}
// Whole numbers in [-128, 127], one byte each.
inline void StoreBytes(int8_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}

inline Vec LoadBytes(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// Turns 4-bit codes of 16 columns into the bytes that Int8Type reads: code * factor + (128 - zero *
// factor). A group is factor | zero << 4 of each column.
struct Int4Groups {
  __m512i factor;  // in both halves of a lane
  __m512i base;    // in each byte
};
inline Int4Groups LoadInt4Groups(const uint8_t* p) {
  const __m512i bits = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i factor = _mm512_and_si512(bits, _mm512_set1_epi32(15));
  const __m512i zero = _mm512_srli_epi32(bits, 4);
  const __m512i base = _mm512_sub_epi32(_mm512_set1_epi32(128), _mm512_mullo_epi16(zero, factor));
  return {_mm512_or_si512(factor, _mm512_slli_epi32(factor, 16)),
          _mm512_shuffle_epi8(base, _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0))};
}
// code * factor is at most 225: the product of a pair of bytes does not overflow.
inline Units Scaled(Units codes, const Int4Groups& groups) {
  const __m512i low = _mm512_and_si512(codes, _mm512_set1_epi8(15));
  return _mm512_add_epi8(_mm512_mullo_epi16(low, groups.factor), groups.base);
}
inline Units LowCodes(Units codes, const Int4Groups& groups) { return Scaled(codes, groups); }
inline Units HighCodes(Units codes, const Int4Groups& groups) {
  return Scaled(_mm512_srli_epi16(codes, 4), groups);
}
inline void StoreUnits(uint32_t* p, Units x) { _mm512_storeu_si512(p, x); }

// For blocks: bits of codes, and numbers that scales are made of.
inline Units ShiftRight(Units x, int bits) {
  return _mm512_srli_epi32(x, static_cast<unsigned>(bits));
}
inline Units ShiftLeft(Units x, int bits) {
  return _mm512_slli_epi32(x, static_cast<unsigned>(bits));
}
inline Units OrUnits(Units a, Units b) { return _mm512_or_si512(a, b); }
// Each byte, in [0, 16), becomes its entry of the table.
inline Units LookUp(Units codes, const uint8_t* table) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), codes);
}
inline Units AddUnits(Units a, Units b) { return _mm512_add_epi32(a, b); }
// The bits of floats, and floats of bits.
inline Units UnitsOf(Vec x) { return _mm512_castps_si512(x); }
inline Vec FloatsOf(Units x) { return _mm512_castsi512_ps(x); }
// Entry x, in [0, 16), of the table.
inline Vec LookUpFloats(Units x, const float* table) {
  return _mm512_permutexvar_ps(x, _mm512_loadu_ps(table));
}
inline Vec ExactFma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec SetInt(int32_t x) { return _mm512_castsi512_ps(_mm512_set1_epi32(x)); }
// The largest lane of a result of MaxAbsBits: NaN if there was one.
inline float ReduceMaxBits(Vec x) {
  const auto max = static_cast<int>(_mm512_reduce_max_epu32(_mm512_castps_si512(x)));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(max)));
}
inline Vec LoadHalves(const uint16_t* p) {  // f16
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512i WidenBytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m512i SignExtendBytes(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// Unit i: bf16 of even[i] below that of odd[i]. Numbers below 2^-126 become 0, for which Dot takes
// them anyway.
inline __m512i Bf16Pairs(Vec even, Vec odd) {
  const auto order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                      23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}
inline Vec LoadUnsignedBytes(const uint8_t* p) { return _mm512_cvtepi32_ps(WidenBytes(p)); }
// 2^(byte - 128), as the product of two powers that are no denormals.
inline Vec LoadPowers(const uint8_t* p) {
  const __m512i bytes = WidenBytes(p), half = _mm512_srli_epi32(bytes, 1);
  const __m512i bias = _mm512_set1_epi32(127 - 64);
  const auto power = [&](__m512i exponent) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(exponent, bias), 23));
  };
  return _mm512_mul_ps(power(half), power(_mm512_sub_epi32(bytes, half)));
}

}  // namespace
}  // namespace tandem
