// The ops with adapters against the reference, in every format of the matrix, and batch invariance:
// a row has the bits it has alone, and one without an adapter those of the op without adapters. On
// a device, whose bits may depend on the batch, it has nearly these numbers.

#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kNumSlots = 4;  // of which the last one leaves the matrix as it is
constexpr int kMaxRank = 19;  // of a block

// The pairs of an op, where the ops of the backend find them.
class OpPairs {
 public:
  // of_sites: of each site the pairs by slot; experts are sites.
  OpPairs(Backend& backend, const PairShape& shape,
          const std::vector<std::vector<const PackedPair*>>& of_sites)
      : backend_(backend) {
    for (const auto& pairs : of_sites) all_.insert(all_.end(), pairs.begin(), pairs.end());
    const size_t num_places = of_sites[0].size();
    // Between the sites others, for which there are no pairs.
    constexpr PairShape kOther = {.n = 3, .k = 5};
    std::vector<PairShape> sites = {kOther};
    for (size_t i = 0; i < of_sites.size(); ++i) sites.insert(sites.end(), {shape, kOther});
    table_ = backend.MakePairTable(sites, static_cast<int64_t>(num_places), kMaxRank).value();
    if (table_ == nullptr) return;
    // What was in a place before leaves nothing.
    for (size_t shift : {size_t{1}, size_t{0}}) {
      for (size_t place = 0; place < num_places; ++place) {
        std::vector<const PackedPair*> pairs = {nullptr};
        for (const auto& of_site : of_sites) pairs.insert(pairs.end(), {of_site[place], nullptr});
        table_->Load(static_cast<int64_t>((place + shift) % num_places), pairs);
      }
    }
  }

  // Until the next call.
  AdapterRows Rows(const std::vector<int32_t>& slots, const std::vector<int32_t>& rows) {
    slots_ = UploadInts(backend_, slots, {static_cast<int64_t>(slots.size())});
    rows_ = UploadInts(backend_, rows, {static_cast<int64_t>(rows.size())});
    AdapterRows adapters = {.slots = slots_, .rows = rows_};
    if (table_ == nullptr) {
      adapters.pairs = all_;
    } else {
      adapters.table = table_.get();
      adapters.site = 1;
      adapters.site_stride = 2;
    }
    return adapters;
  }

 private:
  Backend& backend_;
  std::vector<const PackedPair*> all_;
  std::unique_ptr<PairTable> table_;
  OwnedTensor slots_, rows_;
};

// The matrix [n, k] of a case, its adapters and its rows.
struct AdapterCase {
  int64_t m, n, k;
  bool is_gated = false;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
  WeightFormat format = WeightFormat::kCompute;
  std::vector<float> w, x, bias, before;
  // Of each adapter the pairs of its row blocks.
  struct Block {
    int64_t begin, rows, rank;
    float scale;
    std::vector<float> a, b;
  };
  std::vector<std::vector<Block>> adapters;
  std::vector<int32_t> slots;  // by row
};

AdapterCase RandomCase(Draw& draw, WeightFormat format) {
  const int rows[] = {1, 2, 5, 6, 7, 13, 31, 64, 230};
  const int columns[] = {2, 30, 48, 64, 66, 130, 340};
  const int depths[] = {1, 2, 31, 48, 97, 256, 333};
  AdapterCase c;
  c.m = rows[draw.Int(0, 8)];
  c.n = columns[draw.Int(0, 6)];
  c.k = depths[draw.Int(0, 6)];
  if (format == WeightFormat::kStored) c.k = 32 * draw.Int(1, 9);
  c.format = format;
  c.is_gated = draw.Int(0, 2) == 0;
  c.epilogue =
      c.is_gated ? (draw.Int(0, 1) == 0 ? LinearEpilogue::kSiluAndMul : LinearEpilogue::kGeluAndMul)
                 : (draw.Int(0, 1) == 0 ? LinearEpilogue::kStore : LinearEpilogue::kAddResidual);
  c.w = draw.Normals(c.n * c.k, 1 / std::sqrt(static_cast<float>(c.k)));
  c.x = draw.Normals(c.m * c.k);
  c.bias = draw.Normals(c.n);
  c.before = draw.Normals(c.m * c.n);
  for (int slot = 0; slot + 1 < kNumSlots; ++slot) {
    std::vector<AdapterCase::Block>& blocks = c.adapters.emplace_back();
    // Blocks that begin and end anywhere, with rows between them that no pair changes.
    for (int64_t begin = draw.Int(0, 3); begin < c.n; begin += draw.Int(0, 20)) {
      AdapterCase::Block& block = blocks.emplace_back();
      block.begin = begin;
      block.rows = std::min<int64_t>(draw.Int(1, 120), c.n - begin);
      block.rank = draw.Int(1, kMaxRank);
      block.scale = draw.Int(0, 1) == 0 ? 0.5f : 2;
      block.a = draw.Normals(block.rank * c.k, 1 / std::sqrt(static_cast<float>(c.k)));
      block.b = draw.Normals(block.rows * block.rank, 0.25f);
      begin += block.rows;
    }
  }
  for (int64_t row = 0; row < c.m; ++row) c.slots.push_back(draw.Int(-1, kNumSlots - 1));
  return c;
}

// Weights as codes in groups of 32 columns, in two matrices, whose panels do not begin at multiples
// of 64.
std::unique_ptr<PackedMatrix> PackCodes(Backend& backend, const AdapterCase& c) {
  constexpr float kStep = 1.0f / 64;
  std::vector<int8_t> codes;
  for (const float w : c.w) {
    codes.push_back(static_cast<int8_t>(std::clamp(std::nearbyint(w / kStep), -128.0f, 127.0f)));
  }
  std::vector<float> scales(c.w.size() / 32, kStep);
  MatrixSource whole(Tensor(codes.data(), DType::kI8, {c.n, c.k}));
  whole.scales = View(scales, {c.n, c.k / 32});
  whole.group_size = 32;
  const MatrixSource blocks[] = {whole.Rows(0, c.n / 2), whole.Rows(c.n / 2, c.n - c.n / 2)};
  return (c.is_gated ? backend.PackGated(blocks, c.format) : backend.Pack(blocks, c.format))
      .value();
}

std::unique_ptr<PackedMatrix> PackMatrix(Backend& backend, AdapterCase& c) {
  if (c.format == WeightFormat::kStored) return PackCodes(backend, c);
  const MatrixSource blocks[] = {View(c.w, {c.n, c.k})};
  return (c.is_gated ? backend.PackGated(blocks, c.format) : backend.Pack(blocks, c.format))
      .value();
}

std::vector<std::unique_ptr<PackedPair>> PackPairs(Backend& backend, AdapterCase& c,
                                                   const PackedMatrix& matrix) {
  std::vector<std::unique_ptr<PackedPair>> pairs;
  for (auto& blocks : c.adapters) {
    std::vector<PairSource> sources;
    for (AdapterCase::Block& block : blocks) {
      sources.push_back({.a = View(block.a, {block.rank, c.k}),
                         .b = View(block.b, {block.rows, block.rank}),
                         .scale = block.scale,
                         .begin = block.begin});
    }
    pairs.push_back(backend.PackPair(sources, matrix.form()).value());
  }
  pairs.push_back(nullptr);
  return pairs;
}

std::vector<const PackedPair*> Pointers(const std::vector<std::unique_ptr<PackedPair>>& pairs) {
  std::vector<const PackedPair*> pointers;
  for (const auto& pair : pairs) pointers.push_back(pair.get());
  return pointers;
}

PairShape ShapeOf(const AdapterCase& c) {
  size_t num_blocks = 1;
  for (const auto& blocks : c.adapters) num_blocks = std::max(num_blocks, blocks.size());
  return {.n = c.n, .k = c.k, .num_blocks = static_cast<int64_t>(num_blocks)};
}

// A case on a backend: rows of it run in any order and number.
class Run {
 public:
  Run(Backend& backend, AdapterCase& c)
      : backend_(backend),
        c_(c),
        matrix_(PackMatrix(backend, c)),
        pairs_(PackPairs(backend, c, *matrix_)),
        op_pairs_(backend, ShapeOf(c), {Pointers(pairs_)}) {}

  std::vector<float> operator()(const std::vector<int32_t>& rows, bool adapts = true) {
    const auto m = static_cast<int64_t>(rows.size());
    const int64_t columns = c_.is_gated ? c_.n / 2 : c_.n;
    std::vector<float> x, before;
    for (const int32_t row : rows) {
      x.insert(x.end(), c_.x.begin() + row * c_.k, c_.x.begin() + (row + 1) * c_.k);
      before.insert(before.end(), c_.before.begin() + row * columns,
                    c_.before.begin() + (row + 1) * columns);
    }
    const bool adds = c_.epilogue == LinearEpilogue::kAddResidual;
    const OwnedTensor out =
        Upload(backend_, before, {m, columns}, adds ? DType::kF32 : backend_.activation_dtype());
    const OwnedTensor in = UploadAct(backend_, x, {m, c_.k});
    const OwnedTensor bias = Upload(backend_, c_.bias, {c_.n}, DType::kF32);
    if (adapts) {
      // The step's tokens are the rows of the whole case, of which these are some.
      backend_.ops().AdaptedLinear(out, in, *matrix_, bias, c_.epilogue,
                                   op_pairs_.Rows(c_.slots, rows));
    } else {
      backend_.ops().Linear(out, in, *matrix_, bias, c_.epilogue);
    }
    return Floats(backend_, out);
  }

 private:
  Backend& backend_;
  AdapterCase& c_;
  std::unique_ptr<PackedMatrix> matrix_;
  std::vector<std::unique_ptr<PackedPair>> pairs_;
  OpPairs op_pairs_;
};

std::vector<int32_t> AllRows(int64_t m) {
  std::vector<int32_t> rows(static_cast<size_t>(m));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<WeightFormat> FormatsOf(const BackendCase& backend_case) {
  if (!backend_case.has_int8) return {WeightFormat::kCompute};
  return {WeightFormat::kCompute, WeightFormat::kInt8, WeightFormat::kInt4Group32,
          WeightFormat::kStored};
}

}  // namespace

TEST_CASE("AdaptedLinear equals the reference: several blocks, every format and epilogue") {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (const WeightFormat format : FormatsOf(backend_case)) {
      for (int seed = 1; seed <= 12; ++seed) {
        INFO(backend_case.name << ", format " << static_cast<int>(format) << ", seed " << seed);
        Draw draw(seed);
        AdapterCase c = RandomCase(draw, format);
        CAPTURE(c.m, c.n, c.k, c.is_gated);
        const std::vector<int32_t> rows = AllRows(c.m);
        // A gate multiplies two sums, and bf16 rounds an integer matrix's sums before it. A device
        // rounds what the matrix makes, too.
        const float more = c.is_gated ? 4 : cpu->device().memory_is_host() ? 1 : 2;
        CHECK(MaxError(Run(*cpu, c)(rows), Run(*reference, c)(rows)) <
              more * backend_case.tolerance());
      }
    }
  }
}

TEST_CASE(
    "AdaptedLinear: each row alone has the bits it has in every batch, and none without one") {
  for (const BackendCase& backend_case : BackendCases()) {
    auto one = backend_case.make(1);
    auto three = backend_case.make(3);
    for (const WeightFormat format : FormatsOf(backend_case)) {
      for (int seed = 21; seed <= 24; ++seed) {
        INFO(backend_case.name << ", format " << static_cast<int>(format) << ", seed " << seed);
        Draw draw(seed);
        AdapterCase c = RandomCase(draw, format);
        CAPTURE(c.m, c.n, c.k, c.is_gated);
        Run alone(*one, c), batched(*three, c);
        const int64_t columns = c.is_gated ? c.n / 2 : c.n;
        const auto together = batched(AllRows(c.m)), plain = batched(AllRows(c.m), false);
        std::vector<int32_t> shuffled = AllRows(c.m);
        draw.Shuffle(&shuffled);
        const auto in_another_order = batched(shuffled);
        const bool has_bits = one->device().memory_is_host();
        const auto is_same = [&](const std::vector<float>& a, const std::vector<float>& b) {
          return has_bits ? SameBits(a, b) : MaxError(a, b) < 2 * backend_case.tolerance();
        };
        bool differs = false;
        for (int64_t i = 0; i < c.m; ++i) {
          const int32_t row = shuffled[static_cast<size_t>(i)];
          const auto of = [&](const std::vector<float>& all, int64_t at) {
            return std::vector<float>(all.begin() + at * columns, all.begin() + (at + 1) * columns);
          };
          REQUIRE(is_same(of(in_another_order, i), of(together, row)));
          if (i < 40) REQUIRE(is_same(alone({row}), of(together, row)));
          const int32_t slot = c.slots[static_cast<size_t>(row)];
          const bool has_none = slot < 0 || slot == kNumSlots - 1;
          if (has_none) REQUIRE(is_same(of(plain, row), of(together, row)));
          differs = differs || !is_same(of(plain, row), of(together, row));
        }
        const bool has_some = std::ranges::any_of(
            c.slots, [](int32_t slot) { return slot >= 0 && slot < kNumSlots - 1; });
        CHECK(differs == has_some);
      }
    }
  }
}

TEST_CASE("AddAdaptedEmbedding equals the reference") {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (int seed = 1; seed <= 4; ++seed) {
      INFO(backend_case.name << " seed " << seed);
      Draw draw(seed);
      const int64_t tokens = draw.Int(1, 40), hidden = draw.Int(1, 100), vocab = draw.Int(1, 60),
                    rank = draw.Int(1, kMaxRank);
      auto a = draw.Normals(rank * vocab), b = draw.Normals(hidden * rank, 0.25f);
      const auto before = draw.Normals(tokens * hidden);
      std::vector<int32_t> slots, ids;
      for (int64_t t = 0; t < tokens; ++t) {
        slots.push_back(draw.Int(-1, 1));
        ids.push_back(draw.Int(0, static_cast<int>(vocab) - 1));
      }
      const auto run = [&](Backend& backend) {
        const auto pair =
            backend
                .PackEmbeddingPair(
                    {.a = View(a, {rank, vocab}), .b = View(b, {hidden, rank}), .scale = 2})
                .value();
        OpPairs pairs(backend, {.n = hidden, .k = vocab, .is_embedding = true},
                      {{pair.get(), nullptr}});
        const OwnedTensor out = Upload(backend, before, {tokens, hidden}, DType::kF32);
        backend.ops().AddAdaptedEmbedding(out, UploadInts(backend, ids, {tokens}),
                                          pairs.Rows(slots, AllRows(tokens)), 0.5f);
        return Floats(backend, out);
      };
      CHECK(MaxError(run(*cpu), run(*reference)) < 2e-5f);
    }
  }
}

TEST_CASE("AdaptedExpertLinear equals AdaptedLinear of each expert's rows") {
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    INFO(backend_case.name);
    Draw draw(7);
    constexpr int kExperts = 3;
    std::vector<AdapterCase> cases;
    std::vector<std::unique_ptr<PackedMatrix>> matrices;
    std::vector<std::unique_ptr<PackedPair>> pairs;
    std::vector<std::vector<const PackedPair*>> pointers;
    AdapterCase shape = RandomCase(draw, WeightFormat::kCompute);
    shape.is_gated = true;
    shape.epilogue = LinearEpilogue::kSiluAndMul;
    shape.m = 9;
    shape.x = draw.Normals(shape.m * shape.k);
    shape.slots = {0, 1, -1, 2, 3, 0, 1, 2, 2};
    shape.before = draw.Normals(shape.m * shape.n);
    for (int e = 0; e < kExperts; ++e) {
      AdapterCase& c = cases.emplace_back(shape);
      c.w = draw.Normals(c.n * c.k);
      c.bias.assign(static_cast<size_t>(c.n), 0);
      // An expert that some adapters leave alone.
      matrices.push_back(PackMatrix(*cpu, c));
      pointers.emplace_back();
      for (auto& pair : PackPairs(*cpu, c, *matrices.back())) {
        pointers.back().push_back(e == 1 ? nullptr : pair.get());
        pairs.push_back(std::move(pair));
      }
    }
    const auto experts = cpu->PackExperts(std::move(matrices)).value();
    // Tokens of experts 0, 1 and 2: some rows stand for the same token.
    std::vector<int32_t> tokens = {0, 3, 5, 2, 4, 1, 3, 7, 8}, begin = {0, 3, 5, 9},
                         chosen = {0, 1, 2};
    std::vector<float> x;
    for (const int32_t token : tokens) {
      x.insert(x.end(), shape.x.begin() + token * shape.k, shape.x.begin() + (token + 1) * shape.k);
    }
    const OwnedTensor begins = UploadInts(*cpu, begin, {4}), all = UploadInts(*cpu, chosen, {3}),
                      of_rows = UploadInts(*cpu, tokens, {9}),
                      of_token = Make(*cpu, DType::kI32, {9, 1}),
                      weights = Make(*cpu, DType::kF32, {9, 1});
    const ExpertPairs expert_pairs = {.begin = begins,
                                      .chosen = all,
                                      .tokens = of_rows,
                                      .of_token = of_token,
                                      .weights = weights};
    OpPairs op_pairs(*cpu, ShapeOf(shape), pointers);
    const OwnedTensor out = Make(*cpu, cpu->activation_dtype(), {9, shape.n / 2});
    cpu->ops().AdaptedExpertLinear(out, UploadAct(*cpu, x, {9, shape.k}), *experts, expert_pairs,
                                   shape.epilogue, op_pairs.Rows(shape.slots, tokens));
    std::vector<float> expected;
    for (int e = 0; e < kExperts; ++e) {
      const std::vector<int32_t> own(tokens.begin() + begin[e], tokens.begin() + begin[e + 1]);
      const auto rows = Run(*cpu, cases[static_cast<size_t>(e)])(own, /*adapts=*/e != 1);
      expected.insert(expected.end(), rows.begin(), rows.end());
    }
    if (cpu->device().memory_is_host()) {
      CHECK(SameBits(Floats(*cpu, out), expected));
    } else {
      CHECK(MaxError(Floats(*cpu, out), expected) < 4 * backend_case.tolerance());
    }
  }
}

}  // namespace tandem
