#pragma once

// Intel's tile registers: eight of 16 rows by 64 bytes. Included by isa_amx.cc only.
// Tiles 0-3 are sums, 4 and 5 rows of activations, 6 and 7 weights: 16 steps of K by 16 columns,
// which is what a panel has in 16 neighbouring steps of one of its strips. So the panels of the
// other instruction sets are read as they are; tiles that lie together as a whole would be read 2
// to 5% faster, and not at all by the others.
//
// A tile product adds, per output, the sums of the even and of the odd k of its 32 to the sum so
// far, without denormals. This is another order than a vector's, so all numbers of rows run on
// tiles, one row too: its bits are those it has among 500.
// Thread: any. The shape of tiles is a thread's own and costs its context switches 8 KiB: a Tiles
// holds it for one kernel's run.

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace tandem {
namespace {

constexpr int kTileSide = 16;                          // rows of a tile, and its units
constexpr int kTileUnits = kTileSide * kTileSide;      // of a full one
constexpr int kPanelStep = kTileSide * kPanelColumns;  // units of a panel that four tiles hold

// The compiler knows what a tile store writes, but not what a tile load reads.
inline void BeforeTileLoads() { asm volatile("" ::: "memory"); }

// What ldtilecfg reads. Sums and rows of activations have `height` rows.
struct alignas(64) TileShape {
  explicit TileShape(int64_t height) {
    for (int t = 0; t < 8; ++t) {
      row_bytes[t] = 64;
      rows[t] = t < 6 ? static_cast<uint8_t>(height) : kTileSide;
    }
  }

  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

class Tiles {
 public:
  explicit Tiles(const TileShape& shape) { asm volatile("ldtilecfg %0" ::"m"(shape)); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// sums += activations * weights, of tiles by number.
struct Bf16Tiles {
  using Type = Bf16Type;
  template <int kSums, int kRows, int kWeights>
  static void Multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
};
// Signed activations, unsigned weights.
struct Int8Tiles {
  using Type = Int8Type;
  template <int kSums, int kRows, int kWeights>
  static void Multiply() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
};

template <int kTile>
inline __attribute__((always_inline)) void LoadTile(const void* from, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile));
}
// The same of what is not read again soon: it takes no place in L1 from what is. Of two tiles of
// rows in L1 and weights in L2 products take 0.76 of the time with it.
template <int kTile>
inline __attribute__((always_inline)) void StreamTile(const void* from, int64_t row_bytes) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile));
}
template <int kTile>
inline __attribute__((always_inline)) void StoreTileTo(void* to, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
inline __attribute__((always_inline)) void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

}  // namespace
}  // namespace tandem
