// The positions of elements in registers against the formulas of the PTX ISA ("Matrix Fragments for mma.m16n8k16 with
// floating point type" and similar sections), copied shape by shape in their original form.
#include "kernels/cuda/dot_tiles.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

using enum DType;
using enum MatrixInstruction;

struct At {  // row and column of a matrix, of one of `tile` tiles
  int row, column, tile;
  friend auto operator<=>(const At&, const At&) = default;
};

// g = lane >> 2 and t = lane % 4 are groupID and threadID_in_group; i counts the elements of one thread.
struct Fragments {
  std::string name;
  MatrixInstruction instruction;
  DType type;
  std::function<At(int g, int t, int i)> a, b;
};

At c_of(int g, int t, int i) { return {i < 2 ? g : g + 8, t * 2 + (i & 1), 0}; }

std::vector<Fragments> fragments() {
  return {
      {"m16n8k4 tf32", mma_m16n8k4, f32,
       [](int g, int t, int i) {
         return At{i == 0 ? g : g + 8, t, 0};
       },
       [](int g, int t, int) {
         return At{t, g, 0};
       }},
      {"m16n8k8 tf32", mma_m16n8k8, f32,
       [](int g, int t, int i) {
         return At{i == 0 || i == 2 ? g : g + 8, i == 0 || i == 1 ? t : t + 4, 0};
       },
       [](int g, int t, int i) {
         return At{i == 0 ? t : t + 4, g, 0};
       }},
      {"m16n8k8 16-bit", mma_m16n8k8, f16,
       [](int g, int t, int i) {
         return At{i == 0 || i == 1 ? g : g + 8, t * 2 + (i & 1), 0};
       },
       [](int g, int t, int i) {
         return At{t * 2 + i, g, 0};
       }},
      {"m16n8k16 16-bit", mma_m16n8k16, bf16,
       [](int g, int t, int i) {
         return At{(0 <= i && i < 2) || (4 <= i && i < 6) ? g : g + 8, i < 4 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8,
                   0};
       },
       [](int g, int t, int i) {
         return At{i < 2 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8, g, 0};
       }},
      {"m16n8k16 8-bit", mma_m16n8k16, e4m3,
       [](int g, int t, int i) {
         return At{i < 4 ? g : g + 8, t * 4 + (i & 3), 0};
       },
       [](int g, int t, int i) {
         return At{t * 4 + (i & 3), g, 0};
       }},
      {"m16n8k32 8-bit", mma_m16n8k32, e5m2,
       [](int g, int t, int i) {
         return At{(0 <= i && i < 4) || (8 <= i && i < 12) ? g : g + 8, i < 8 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16,
                   0};
       },
       [](int g, int t, int i) {
         return At{i < 4 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16, g, 0};
       }},
      {"m16n8k64 4-bit", mma_m16n8k64, e2m1,
       [](int g, int t, int i) {
         return At{(0 <= i && i < 8) || (16 <= i && i < 24) ? g : g + 8,
                   i < 16 ? t * 8 + (i & 7) : t * 8 + (i & 7) + 32, 0};
       },
       [](int g, int t, int i) {
         return At{i < 8 ? t * 8 + (i & 7) : t * 8 + (i & 7) + 32, g, 0};
       }},
      {"m8n8k4 f64", mma_m8n8k4, f64,
       [](int g, int t, int) {
         return At{g, t, 0};
       },
       [](int g, int t, int) {
         return At{t, g, 0};
       }},
      {"m16n8k4 f64", mma_m16n8k4, f64,
       [](int g, int t, int i) {
         return At{i == 0 ? g : g + 8, t, 0};
       },
       [](int g, int t, int) {
         return At{t, g, 0};
       }},
      {"m16n8k8 f64", mma_m16n8k8, f64,
       [](int g, int t, int i) {
         return At{i == 0 || i == 2 ? g : g + 8, i == 0 || i == 1 ? t : t + 4, 0};
       },
       [](int g, int t, int i) {
         return At{i == 0 ? t : t + 4, g, 0};
       }},
      {"m16n8k16 f64", mma_m16n8k16, f64,
       [](int g, int t, int i) {
         return At{i % 2 == 0 ? g : g + 8, i % 2 == 0 ? i * 2 + t : i * 2 - 2 + t, 0};
       },
       [](int g, int t, int i) {
         return At{t + i * 4, g, 0};
       }},
  };
}

DotRow row_of(MatrixInstruction instruction, DType type, DType sum) {
  for (const DotRow& row : kDotRows.row)
    if (row.instruction == instruction && row.a == type && row.out == sum) return row;
  ADD_FAILURE() << "no row";
  return {};
}

At at(const TilePlace& p) { return {p.row, p.column, p.tile}; }

TEST(DotTiles, AreThoseOfThePtxIsa) {
  for (const Fragments& f : fragments()) {
    const DType sum = f.type == f64 ? f64 : f32;
    const DotTile tile = tile_of(row_of(f.instruction, f.type, sum));
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane >> 2, t = lane % 4;
      for (int r = 0; r < tile.a_registers; ++r)
        for (int j = 0; j < tile.elements; ++j) {
          const TilePlace p = a_place(tile, lane, r);
          EXPECT_EQ(at({p.row, p.column + j, p.tile}), f.a(g, t, r * tile.elements + j)) << f.name << " a " << lane;
        }
      for (int r = 0; r < tile.b_registers; ++r)
        for (int j = 0; j < tile.elements; ++j) {
          const TilePlace p = b_place(tile, lane, r);
          EXPECT_EQ(at({p.row + j, p.column, p.tile}), f.b(g, t, r * tile.elements + j)) << f.name << " b " << lane;
        }
      for (int i = 0; i < tile.results; ++i)
        EXPECT_EQ(at(result_place(tile, false, lane, i)), c_of(g, t, i)) << f.name << " c " << lane;
    }
  }
}

TEST(DotTiles, OfVoltaAreFourQuadPairs) {
  // Threads 0-3 with 16-19 compute the first of four products, 4-7 with 20-23 the second, and so on.
  for (const DType sum : {f32, f16}) {
    const DotTile tile = tile_of(row_of(mma_m8n8k4, f16, sum));
    ASSERT_EQ(tile.results, 8);
    for (int lane = 0; lane < 32; ++lane) {
      const int quad_pair = (lane < 16 ? lane : lane - 16) / 4;
      const int line = lane < 16 ? lane % 4 : lane % 4 + 4;
      for (int i = 0; i < 4; ++i) {
        const TilePlace a = a_place(tile, lane, i / 2), b = b_place(tile, lane, i / 2);
        EXPECT_EQ(at({a.row, a.column + i % 2, a.tile}), (At{line, i, quad_pair})) << lane;  // A row-major
        EXPECT_EQ(at({b.row + i % 2, b.column, b.tile}), (At{i, line, quad_pair})) << lane;  // B column-major
      }
      for (int i = 0; i < 8; ++i) {
        const int x = (lane & 0b1) + (i & 0b10);
        const At wide{lane < 16 ? x : x + 4, (i & 0b100) + (lane & 0b10) + (i & 0b1), quad_pair};
        const At expected = sum == f16 ? At{line, i, quad_pair} : wide;
        EXPECT_EQ(at(result_place(tile, sum == f16, lane, i)), expected) << lane;
      }
    }
  }
}

TEST(DotTiles, CoverEveryElementOnce) {
  for (const DotRow& row : kDotRows.row) {
    if (is_tcgen05(row.instruction)) continue;  // not in registers
    const DotTile tile = tile_of(row);
    std::set<At> a, b, d;
    size_t held_a = 0, held_b = 0, held_d = 0;
    for (int thread = 0; thread < tile.threads(); ++thread) {
      for (int r = 0; r < tile.a_registers; ++r)
        for (int j = 0; j < tile.elements; ++j, ++held_a) {
          const TilePlace p = a_place(tile, thread, r);
          a.insert({p.row, p.column + j, p.tile});
        }
      for (int r = 0; !tile.wgmma && r < tile.b_registers; ++r)
        for (int j = 0; j < tile.elements; ++j, ++held_b) {
          const TilePlace p = b_place(tile, thread, r);
          b.insert({p.row + j, p.column, p.tile});
        }
      for (int i = 0; i < tile.results; ++i, ++held_d) d.insert(at(result_place(tile, row.out == f16, thread, i)));
    }
    const auto whole = [&](int rows, int columns) {
      std::set<At> all;
      for (int i = 0; i < tile.tiles(); ++i)
        for (int y = 0; y < rows; ++y)
          for (int x = 0; x < columns; ++x) all.insert({y, x, i});
      return all;
    };
    const std::string name = ptx_of(row).text;
    EXPECT_EQ(a, whole(tile.m, tile.k)) << name;
    EXPECT_EQ(a.size(), held_a) << name;
    EXPECT_EQ(d, whole(tile.m, tile.n)) << name;
    EXPECT_EQ(d.size(), held_d) << name;
    if (tile.wgmma) continue;
    EXPECT_EQ(b, whole(tile.k, tile.n)) << name;
    EXPECT_EQ(b.size(), held_b) << name;
  }
}

TEST(DotTiles, OfWgmmaAreFourTilesOfMmaBelowEachOther) {
  // PTX ISA, "Register Fragments" of wgmma: row = 16 (warp % 4) + the row in m16n8k*, columns as there.
  const DotTile wide = tile_of(row_of(wgmma_k16, f16, f32)), narrow = tile_of(row_of(mma_m16n8k16, f16, f32));
  ASSERT_EQ(wide.a_registers, narrow.a_registers);
  ASSERT_EQ(wide.results, narrow.results);
  for (int thread = 0; thread < 128; ++thread) {
    for (int r = 0; r < wide.a_registers; ++r) {
      const TilePlace in_warp = a_place(narrow, thread % 32, r);
      EXPECT_EQ(at(a_place(wide, thread, r)), (At{16 * (thread / 32) + in_warp.row, in_warp.column, 0}));
    }
    for (int i = 0; i < wide.results; ++i) {
      const TilePlace in_warp = result_place(narrow, false, thread % 32, i);
      EXPECT_EQ(at(result_place(wide, false, thread, i)), (At{16 * (thread / 32) + in_warp.row, in_warp.column, 0}));
    }
  }
}

TEST(DotTiles, OfWgmmaLayColumnsInCoreMatrices) {
  // PTX ISA, "Shared Memory Matrix Layout", no swizzle, K-major: a core matrix is eight consecutive rows of 16 bytes.
  std::set<int> bytes;
  for (int column = 0; column < 8; ++column)
    for (int byte = 0; byte < 32; ++byte) {
      const int core_matrix = byte / 16, in_row = byte - 16 * core_matrix;
      EXPECT_EQ(wgmma_offset(column, byte), core_matrix * (8 * 16) + column * 16 + in_row);
      bytes.insert(wgmma_offset(column, byte));
    }
  EXPECT_EQ(bytes.size(), static_cast<size_t>(kWgmmaBytes));
  EXPECT_EQ(*bytes.begin(), 0);
  EXPECT_EQ(*bytes.rbegin(), kWgmmaBytes - 1);
  // "Matrix Descriptor Format": bits 13-0 address / 16, 29-16 leading, 45-32 stride offset / 16, 63-62 swizzle 0.
  EXPECT_EQ(wgmma_descriptor(0x1230), 0x0000'0008'0008'0123u);
  EXPECT_EQ(wgmma_descriptor(0x0003'FFF0) & 0xFFFF, 0x3FFFu);
  for (const DotRow& row : kDotRows.row)
    if (is_wgmma(row.instruction)) {
      EXPECT_EQ(dot_depth(row.instruction) * dot_bits(row.a), 32 * 8);
    }
}

TEST(DotTiles, GiveEveryProblemOneDiagonalElement) {
  for (const DotRow& row : kDotRows.row) {
    if (is_tcgen05(row.instruction)) continue;  // not in registers
    const DotTile tile = tile_of(row);
    std::multiset<std::pair<int, int>> diagonal;
    for (int thread = 0; thread < tile.threads(); ++thread)
      for (int i = 0; i < tile.results; ++i)
        if (const TilePlace p = result_place(tile, row.out == f16, thread, i); p.row == p.column)
          diagonal.insert({p.tile, p.row});
    EXPECT_EQ(diagonal.size(), static_cast<size_t>(tile.problems())) << ptx_of(row).text;
    EXPECT_EQ((std::set<std::pair<int, int>>(diagonal.begin(), diagonal.end())).size(), diagonal.size());
  }
}

TEST(DotTiles, ScalesComeFromTheFirstThreadsOfEachFour) {
  // PTX ISA, "Block Scaling": with thread-id-a 0, threads 4 g and 4 g + 1 supply rows g and g + 8 of scale_A; with
  // thread-id-b 0, thread 4 g supplies column g of scale_B.
  for (int g = 0; g < 8; ++g) {
    EXPECT_EQ(scale_row(4 * g), g);
    EXPECT_EQ(scale_row(4 * g + 1), g + 8);
    EXPECT_EQ(scale_column(4 * g), g);
  }
}

TEST(DotTiles, SpreadPackedFp4OverBytes) {
  for (uint32_t packed = 0; packed < 0x10000; ++packed)
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t code = packed / (i == 0 ? 1u : i == 1 ? 16u : i == 2 ? 256u : 4096u) % 16u;
      ASSERT_EQ(e2m1_in_bytes(packed) / (1u << 8 * i) % 256u, code * 4) << packed << " element " << i;
    }
}

TEST(DotTable, AgreesWithTheLibrarysDepthsAndBits) {
  for (const DotRow& row : kDotRows.row) {
    EXPECT_EQ(dot_depth(row.instruction), depth_of(row.instruction));
    for (const DType dtype : {row.a, row.b, row.c, row.out}) EXPECT_EQ(dot_bits(dtype), bits_of(dtype));
    if (is_tcgen05(row.instruction)) continue;  // its shape is in a descriptor
    const std::string name(name_of(row.instruction)), shape = ptx_shape(row.instruction);
    EXPECT_EQ(name.substr(name.find('.')).find(is_wgmma(row.instruction) ? shape.substr(shape.find('k')) : shape), 1u)
        << name << " " << shape;
  }
}

}  // namespace
}  // namespace halfmark::kernels::cuda
