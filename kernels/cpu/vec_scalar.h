#pragma once

// Sixteen float lanes in an array, for any CPU; see vec_avx512.h. Included by isa_scalar.cc only.
// Multiply and add round separately (no FMA is assumed).

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

constexpr int kTileRows = 2;
constexpr int kStripVecs = 1;
constexpr bool kPrefetchWeights = false;
constexpr int kInt4Rows = 0;
constexpr int kBlockRows = 2, kBlockStripVecs = 1, kWideBlockRows = 0;
constexpr int kLanes = 16;

struct Vec {
  float lane[kLanes];
};
struct Units {
  uint32_t lane[kLanes];
};

// One lane at a time: f(i) is lane i of the result.
template <class F>
inline Vec Lanes(F f) {
  Vec result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = f(i);
  return result;
}

inline float Widen(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }
inline uint16_t Narrow(float value) {  // nearest, ties to even; NaN stays NaN
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline Vec Zero() { return Vec{}; }
inline Vec Set1(float x) {
  return Lanes([&](int) { return x; });
}
inline Vec Load(const float* p) {
  return Lanes([&](int i) { return p[i]; });
}
inline Vec LoadN(const float* p, int64_t n) {
  return Lanes([&](int i) { return i < n ? p[i] : 0.0f; });
}
inline Vec Load(const uint16_t* p) {
  return Lanes([&](int i) { return Widen(p[i]); });
}
inline Vec LoadN(const uint16_t* p, int64_t n) {
  return Lanes([&](int i) { return i < n ? Widen(p[i]) : 0.0f; });
}
inline void StoreN(float* p, const Vec& x, int64_t n) {
  for (int i = 0; i < n; ++i) p[i] = x.lane[i];
}
inline void StoreN(uint16_t* p, const Vec& x, int64_t n) {
  for (int i = 0; i < n; ++i) p[i] = Narrow(x.lane[i]);
}
inline void StoreExactN(uint16_t* p, const Vec& x, int64_t n) { StoreN(p, x, n); }
inline void Store(float* p, const Vec& x) { StoreN(p, x, kLanes); }
inline void Store(uint16_t* p, const Vec& x) { StoreN(p, x, kLanes); }

inline Vec Add(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec Sub(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec Div(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
  return Lanes([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Vec Max(const Vec& a, const Vec& b) {  // b when either is NaN
  return Lanes([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec Min(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec RoundToInt(const Vec& a) {
  // Adding and subtracting 1.5 * 2^23 rounds anything below 2^22 to the nearest whole number.
  return Lanes([&](int i) { return (a.lane[i] + 12582912.0f) - 12582912.0f; });
}
inline Vec TimesPow2(const Vec& p, const Vec& n) {
  return Lanes([&](int i) {
    const auto exponent = static_cast<uint32_t>(static_cast<int>(n.lane[i]) + 127);
    return p.lane[i] * std::bit_cast<float>(exponent << 23);
  });
}
inline Vec SelectLess(const Vec& a, const Vec& b, const Vec& x, const Vec& y) {
  return Lanes([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
}
inline Vec KeepLanes(const Vec& x, int begin, int end, const Vec& other) {
  return Lanes([&](int i) { return i >= begin && i < end ? x.lane[i] : other.lane[i]; });
}
inline float ReduceAdd(Vec x) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  }
  return x.lane[0];
}
inline float ReduceMax(const Vec& x) {
  float max = x.lane[0];
  for (int i = 1; i < kLanes; ++i) max = x.lane[i] > max ? x.lane[i] : max;
  return max;
}

inline Units LoadUnits(const uint32_t* p) {
  Units result;
  memcpy(&result, p, sizeof(result));
  return result;
}
// out[u * kTileRows + r] = unit u of row r.
inline void StoreInterleaved(const Units (&rows)[kTileRows], uint32_t* out) {
  for (int u = 0; u < kLanes; ++u) {
    for (int r = 0; r < kTileRows; ++r) out[u * kTileRows + r] = rows[r].lane[u];
  }
}
inline void TransposePairs(const uint32_t* rows, uint32_t* out, int64_t stride) {
  for (int r = 0; r < 8; ++r) {
    for (int t = 0; t < 16; ++t) {
      const uint32_t a = rows[r * 32 + 2 * t], b = rows[r * 32 + 2 * t + 1];
      out[t * stride + 2 * r] = (a & 0xffff) | b << 16;
      out[t * stride + 2 * r + 1] = a >> 16 | (b & 0xffff0000);
    }
  }
}
inline Units TakeUnits(const uint32_t* units, const Units& index) {
  Units taken;
  for (int i = 0; i < kLanes; ++i) taken.lane[i] = units[index.lane[i]];
  return taken;
}
inline Units AndUnits(Units x, uint32_t mask) {
  for (uint32_t& lane : x.lane) lane &= mask;
  return x;
}

struct Bf16Type {
  using Element = uint16_t;
  static constexpr int kStep = 2;
  struct Broadcast {
    float first, second;
  };
  static float First(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float Second(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000); }
  static Broadcast Spread(const uint32_t* unit) {
    uint32_t pair;
    memcpy(&pair, unit, sizeof(pair));
    return {First(pair), Second(pair)};
  }
  static Vec Dot(Vec sum, Broadcast a, const Units& w) {
    for (int i = 0; i < kLanes; ++i) {
      sum.lane[i] += a.first * First(w.lane[i]);
      sum.lane[i] += a.second * Second(w.lane[i]);
    }
    return sum;
  }
};

struct F32Type {
  using Element = float;
  static constexpr int kStep = 1;
  using Broadcast = float;
  static Broadcast Spread(const uint32_t* unit) {
    float value;
    memcpy(&value, unit, sizeof(value));
    return value;
  }
  static Vec Dot(Vec sum, Broadcast a, const Units& w) {
    for (int i = 0; i < kLanes; ++i) sum.lane[i] += a * std::bit_cast<float>(w.lane[i]);
    return sum;
  }
};

struct Int8Type {
  static constexpr int kStep = 4;
  struct Broadcast {
    int8_t byte[4];
  };
  static Broadcast Spread(const uint32_t* unit) {
    Broadcast a;
    memcpy(&a, unit, sizeof(a));
    return a;
  }
  static Vec Dot(Vec sum, const Broadcast& a, const Units& w) {
    for (int i = 0; i < kLanes; ++i) {
      auto total = std::bit_cast<int32_t>(sum.lane[i]);
      for (int b = 0; b < 4; ++b) {
        total += static_cast<int32_t>(w.lane[i] >> 8 * b & 0xff) * a.byte[b];
      }
      sum.lane[i] = std::bit_cast<float>(total);
    }
    return sum;
  }
};

inline Vec FromInts(const Vec& x, int32_t offset) {
  return Lanes(
      [&](int i) { return static_cast<float>(std::bit_cast<int32_t>(x.lane[i]) + offset); });
}
inline Vec MaxAbsBits(const Vec& max, const Vec& x) {
  return Lanes([&](int i) {
    const auto a = std::bit_cast<uint32_t>(max.lane[i]);
    const uint32_t b = std::bit_cast<uint32_t>(x.lane[i]) & 0x7fffffff;
    return std::bit_cast<float>(a > b ? a : b);
  });
}
inline void StoreBytes(int8_t* p, const Vec& x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(static_cast<int>(x.lane[i]));
}

inline Vec LoadBytes(const int8_t* p) {
  return Lanes([&](int i) { return static_cast<float>(p[i]); });
}

struct Int4Groups {
  Units factor;
  Units base;  // in each byte
};
inline Int4Groups LoadInt4Groups(const uint8_t* p) {
  Int4Groups groups;
  for (int i = 0; i < kLanes; ++i) {
    groups.factor.lane[i] = p[i] & 15u;
    groups.base.lane[i] = (128 - (p[i] >> 4) * (p[i] & 15u)) * 0x01010101u;
  }
  return groups;
}
inline Units LowCodes(Units codes, const Int4Groups& groups) {
  for (int i = 0; i < kLanes; ++i) {
    codes.lane[i] = (codes.lane[i] & 0x0f0f0f0f) * groups.factor.lane[i] + groups.base.lane[i];
  }
  return codes;
}
inline Units HighCodes(Units codes, const Int4Groups& groups) {
  for (uint32_t& lane : codes.lane) lane >>= 4;
  return LowCodes(codes, groups);
}
inline void StoreUnits(uint32_t* p, const Units& x) { memcpy(p, &x, sizeof(x)); }

inline Units ShiftRight(Units x, int bits) {
  for (uint32_t& lane : x.lane) lane >>= bits;
  return x;
}
inline Units ShiftLeft(Units x, int bits) {
  for (uint32_t& lane : x.lane) lane <<= bits;
  return x;
}
inline Units OrUnits(Units a, const Units& b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] |= b.lane[i];
  return a;
}
inline Units LookUp(Units codes, const uint8_t* table) {
  for (uint32_t& lane : codes.lane) {
    uint32_t entries = 0;
    for (int b = 0; b < 32; b += 8) entries |= uint32_t{table[lane >> b & 15]} << b;
    lane = entries;
  }
  return codes;
}
inline Units AddUnits(Units a, const Units& b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline Units UnitsOf(const Vec& x) { return std::bit_cast<Units>(x); }
inline Vec FloatsOf(const Units& x) { return std::bit_cast<Vec>(x); }
inline Vec LookUpFloats(const Units& x, const float* table) {
  return Lanes([&](int i) { return table[x.lane[i]]; });
}
inline Units WidenBytes(const uint8_t* p) {
  Units result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = p[i];
  return result;
}
inline Units SignExtendBytes(const uint8_t* p) {
  Units result;
  for (int i = 0; i < kLanes; ++i) {
    result.lane[i] = static_cast<uint32_t>(int32_t{static_cast<int8_t>(p[i])});
  }
  return result;
}
// Unit i: bf16 of even[i] below that of odd[i].
inline Units Bf16Pairs(const Vec& even, const Vec& odd) {
  Units result;
  for (int i = 0; i < kLanes; ++i) {
    result.lane[i] = Narrow(even.lane[i]) | uint32_t{Narrow(odd.lane[i])} << 16;
  }
  return result;
}
inline Vec ExactFma(const Vec& a, const Vec& b, const Vec& c) {  // rounded once, here too
  return Lanes([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Vec SetInt(int32_t x) {
  return Lanes([&](int) { return std::bit_cast<float>(x); });
}
inline float ReduceMaxBits(const Vec& x) {
  uint32_t max = 0;
  for (const float lane : x.lane) {
    const auto bits = std::bit_cast<uint32_t>(lane);
    max = bits > max ? bits : max;
  }
  return std::bit_cast<float>(max);
}
// The product moves the exponent; infinities and NaN are not numbers that it moves.
inline Vec LoadHalves(const uint16_t* p) {
  return Lanes([&](int i) {
    const uint32_t magnitude = (p[i] & 0x7fffu) << 13, sign = (p[i] & 0x8000u) << 16;
    const float moved = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x7c00u << 13 ? 0x7f800000 : 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(moved) | special | sign);
  });
}
inline Vec LoadUnsignedBytes(const uint8_t* p) {
  return Lanes([&](int i) { return static_cast<float>(p[i]); });
}
inline Vec LoadPowers(const uint8_t* p) {
  return Lanes([&](int i) {
    const uint32_t half = p[i] / 2u, rest = p[i] - half;
    return std::bit_cast<float>((half + 63) << 23) * std::bit_cast<float>((rest + 63) << 23);
  });
}

}  // namespace
}  // namespace tandem
