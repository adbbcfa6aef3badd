// The ops of layers with a state against the reference backend: sequences that run at once there
// run here in steps of any length and order, beside padding, over blocks that they share, with
// drafts that are right or wrong.

#include <array>
#include <functional>

#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// An op over tokens. Inputs are bf16 numbers, in the activation type or float32.
struct StateOp {
  int64_t out_columns = 0;
  int64_t state_size = 0;  // of its part
  std::vector<int64_t> in_columns;
  std::vector<bool> in_act;
  std::function<void(Backend&, const std::vector<OwnedTensor>&, const Tensor& out, const StatePart&,
                     const AttentionPlan&)>
      run;
};

// The first shared_blocks of a sequence are those of an earlier one, whose states it goes on from.
struct Sequence {
  int length = 0;
  int parent = -1;
  int shared_blocks = 0;
  std::vector<std::vector<float>> inputs;  // rows of each input
};

std::vector<Sequence> DrawSequences(const StateOp& op, int block_size, Draw& draw) {
  constexpr int kNumSequences = 5;
  constexpr std::array<int, kNumSequences> kParents = {-1, -1, 0, 2, 0};
  std::vector<Sequence> sequences(kNumSequences);
  for (size_t r = 0; r < kParents.size(); ++r) {
    Sequence& sequence = sequences[r];
    sequence.parent = kParents[r];
    // A grandchild goes on from a block that its parent fills itself.
    sequence.shared_blocks = r == 3 ? 2 : sequence.parent >= 0 ? 1 : 0;
    const int least = r == 0 || r == 2 ? 2 * block_size : sequence.shared_blocks * block_size + 1;
    sequence.length = least + draw.Int(0, block_size + 3);
    for (size_t i = 0; i < op.in_columns.size(); ++i) {
      std::vector<float> rows = draw.Normals(sequence.length * op.in_columns[i]);
      if (sequence.parent >= 0) {
        const auto& from = sequences[static_cast<size_t>(sequence.parent)].inputs[i];
        std::copy_n(from.begin(), sequence.shared_blocks * block_size * op.in_columns[i],
                    rows.begin());
      }
      sequence.inputs.push_back(std::move(rows));
    }
  }
  return sequences;
}

// Runs sequences over the states of one backend.
class StateRunner {
 public:
  StateRunner(Backend& backend, const StateOp& op, const std::vector<Sequence>& sequences,
              int block_size, bool shares, Draw& draw)
      : backend_(backend), op_(op), sequences_(sequences), block_size_(block_size) {
    int most = 0;
    for (const Sequence& sequence : sequences) most = std::max(most, NumBlocks(sequence));
    std::vector<int32_t> ids(sequences.size() * static_cast<size_t>(most));
    std::iota(ids.begin(), ids.end(), 1);
    draw.Shuffle(&ids);
    for (const Sequence& sequence : sequences) {
      std::vector<int32_t> blocks(static_cast<size_t>(most), 0);
      for (int i = 0; i < NumBlocks(sequence); ++i) {
        const bool is_shared = shares && i < sequence.shared_blocks;
        const auto at = static_cast<size_t>(i);
        blocks[at] = is_shared ? blocks_[static_cast<size_t>(sequence.parent)][at] : ids.back();
        if (!is_shared) ids.pop_back();
      }
      blocks_.push_back(blocks);
      num_done_.push_back(shares ? sequence.shared_blocks * block_size : 0);
      outputs_.emplace_back(static_cast<size_t>(sequence.length * op.out_columns));
    }
    const int64_t num_blocks = static_cast<int64_t>(sequences.size()) * most + 1;
    stride_ = (kOffset + op.state_size + 15) / 16 * 16;
    cache_ = backend
                 .AllocateKvCache({.num_layers = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 16,
                                   .block_size = block_size,
                                   .num_blocks = num_blocks,
                                   .layers = {{.has_kv = false, .has_state = true}},
                                   .state_size = stride_})
                 .value();
    std::vector<float> poison(static_cast<size_t>(num_blocks * stride_), NAN);
    backend.device().CopyIn(States(), View(poison, {num_blocks, stride_}));
    plan_ = backend.MakeAttentionPlan({1, 1, 16, block_size}, 4096, 64).value();
  }

  // Tokens of a step.
  struct Scheduled {
    int sequence = 0;  // -1: padding
    int count = 0;     // of the next ones
    int num_drafts = 0;
    bool is_right = true;  // else they are other tokens
  };

  // One step, in batch order.
  void Step(const std::vector<Scheduled>& scheduled) {
    std::vector<int32_t> query_start = {0}, context_len, positions, slots, table;
    num_drafts_.clear();
    std::vector<std::vector<float>> inputs(op_.in_columns.size());
    for (const auto& [r, count, num_drafts, is_right] : scheduled) {
      for (int i = 0; i < count + num_drafts; ++i) {
        Append(r, i, i < count || is_right, &positions, &slots, &inputs);
      }
      query_start.push_back(static_cast<int32_t>(positions.size()));
      const int before = r < 0 ? 0 : num_done_[static_cast<size_t>(r)];
      context_len.push_back(before + count + num_drafts);
      num_drafts_.push_back(num_drafts);
      const std::vector<int32_t> none(blocks_[0].size(), 0);
      const std::vector<int32_t>& blocks = r < 0 ? none : blocks_[static_cast<size_t>(r)];
      table.insert(table.end(), blocks.begin(), blocks.end());
    }
    const std::vector<float> out =
        Execute(query_start, context_len, positions, slots, table, inputs);
    auto next = out.begin();
    for (const auto& [r, count, num_drafts, is_right] : scheduled) {
      if (r >= 0) {
        auto& done = num_done_[static_cast<size_t>(r)];
        const auto to = outputs_[static_cast<size_t>(r)].begin() + done * op_.out_columns;
        std::copy_n(next, (count + (is_right ? num_drafts : 0)) * op_.out_columns, to);
        done += count;
      }
      next += (count + num_drafts) * op_.out_columns;
    }
  }

  // Until every token has run. Returns how many sequences went on from a state of their own step.
  int RunRandomly(Draw& draw) {
    int num_followers = 0;
    while (!IsDone()) {
      std::vector<int> after = num_done_;
      std::vector<Scheduled> scheduled;
      const bool is_decode = draw.Int(0, 2) == 0;
      for (size_t r = 0; r < sequences_.size(); ++r) {
        const int left = sequences_[r].length - num_done_[r];
        if (left == 0 || draw.Int(0, 4) == 0 || !HasStart(r, after)) continue;
        num_followers += HasStart(r, num_done_) ? 0 : 1;
        const int count = is_decode ? 1 : draw.Int(1, left);
        const int room = std::min(left - count, 40);
        const int num_drafts = draw.Int(0, 2) == 0 ? draw.Int(0, room) : 0;
        scheduled.push_back({static_cast<int>(r), count, num_drafts, draw.Int(0, 1) == 0});
        after[r] += count;
        if (draw.Int(0, 5) == 0) scheduled.push_back({-1, 1});
      }
      if (!scheduled.empty()) Step(scheduled);
    }
    return num_followers;
  }

  void RunAtOnce() {
    std::vector<Scheduled> scheduled;
    for (size_t r = 0; r < sequences_.size(); ++r) {
      scheduled.push_back({static_cast<int>(r), sequences_[r].length});
    }
    Step(scheduled);
  }

  // Of the tokens that run where blocks are shared.
  std::vector<float> OutputOf(size_t r) const {
    const int64_t first = sequences_[r].shared_blocks * block_size_ * op_.out_columns;
    return {outputs_[r].begin() + first, outputs_[r].end()};
  }
  // After each of the sequence's blocks.
  std::vector<float> StatesOf(size_t r) {
    const std::vector<float> all = Floats(backend_, States());
    std::vector<float> states;
    for (int i = 0; i < NumBlocks(sequences_[r]); ++i) {
      const auto from = all.begin() + blocks_[r][static_cast<size_t>(i)] * stride_ + kOffset;
      states.insert(states.end(), from, from + op_.state_size);
    }
    return states;
  }
  // Whether what is no state of a sequence is as it was.
  bool LeftOthers() {
    std::vector<float> all = Floats(backend_, States());
    for (size_t r = 0; r < sequences_.size(); ++r) {
      for (int i = 0; i < NumBlocks(sequences_[r]); ++i) {
        const auto from = all.begin() + blocks_[r][static_cast<size_t>(i)] * stride_ + kOffset;
        std::fill_n(from, op_.state_size, NAN);
      }
    }
    return std::ranges::all_of(all, [](float number) { return std::isnan(number); });
  }

 private:
  static constexpr int64_t kOffset = 12;

  int NumBlocks(const Sequence& sequence) const {
    return (sequence.length + block_size_ - 1) / block_size_;
  }
  Tensor States() const {
    const LayerKv& kv = cache_->layer(0);
    return Tensor(kv.states, DType::kF32, {kv.num_blocks, kv.state_size});
  }
  // Whether the state is there that the sequence begins with.
  bool HasStart(size_t r, const std::vector<int>& num_done) const {
    const Sequence& sequence = sequences_[r];
    return sequence.parent < 0 ||
           num_done[static_cast<size_t>(sequence.parent)] >= sequence.shared_blocks * block_size_;
  }
  bool IsDone() const {
    for (size_t r = 0; r < sequences_.size(); ++r) {
      if (num_done_[r] < sequences_[r].length) return false;
    }
    return true;
  }

  // is_right: its own numbers, else others.
  void Append(int r, int i, bool is_right, std::vector<int32_t>* positions,
              std::vector<int32_t>* slots, std::vector<std::vector<float>>* inputs) const {
    const int position = r < 0 ? i : num_done_[static_cast<size_t>(r)] + i;
    positions->push_back(position);
    for (size_t n = 0; n < inputs->size(); ++n) {
      const int64_t columns = op_.in_columns[n];
      std::vector<float> row(static_cast<size_t>(columns), 1.0f);
      if (r >= 0 && is_right) {
        const auto& rows = sequences_[static_cast<size_t>(r)].inputs[n];
        std::copy_n(rows.begin() + position * columns, columns, row.begin());
      }
      (*inputs)[n].insert((*inputs)[n].end(), row.begin(), row.end());
    }
    if (r < 0) return slots->push_back(-1);
    const auto block = static_cast<size_t>(position / block_size_);
    slots->push_back(blocks_[static_cast<size_t>(r)][block] * block_size_ + position % block_size_);
  }

  std::vector<float> Execute(std::vector<int32_t>& query_start, std::vector<int32_t>& context_len,
                             std::vector<int32_t>& positions, std::vector<int32_t>& slots,
                             std::vector<int32_t>& table,
                             const std::vector<std::vector<float>>& inputs) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const auto requests = static_cast<int64_t>(context_len.size());
    const int64_t columns = static_cast<int64_t>(table.size()) / requests;
    const OwnedTensor device_positions = UploadInts(backend_, positions, {tokens});
    const OwnedTensor device_slots = UploadInts(backend_, slots, {tokens});
    const OwnedTensor device_table = UploadInts(backend_, table, {requests, columns});
    AttentionBatch batch;
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.num_drafts = num_drafts_;
    batch.positions = device_positions;
    batch.slot_mapping = device_slots;
    batch.block_table = device_table;
    if (!backend_.device().memory_is_host()) {
      batch.host_slot_mapping = View(slots, {tokens});
      batch.host_block_table = View(table, {requests, columns});
    }
    plan_->Fill(batch);
    // A caller may overwrite these with the next step's numbers.
    for (auto* numbers : {&query_start, &context_len, &slots, &table}) {
      std::ranges::fill(*numbers, -1);
    }
    std::vector<OwnedTensor> uploaded;
    for (size_t n = 0; n < inputs.size(); ++n) {
      uploaded.push_back(Upload(backend_, inputs[n], {tokens, op_.in_columns[n]},
                                op_.in_act[n] ? backend_.activation_dtype() : DType::kF32));
    }
    const OwnedTensor out = Make(backend_, backend_.activation_dtype(), {tokens, op_.out_columns});
    op_.run(backend_, uploaded, out, {.kv = cache_->layer(0), .offset = kOffset}, *plan_);
    return Floats(backend_, out);
  }

  Backend& backend_;
  const StateOp& op_;
  const std::vector<Sequence>& sequences_;
  const int block_size_;
  int64_t stride_ = 0;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<int> num_done_;
  std::vector<int32_t> num_drafts_;  // of the step's sequences
  std::vector<std::vector<float>> outputs_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
};

// Draws ops for each backend, and compares outputs and states of each with the reference.
void CheckOps(int num_seeds, const std::function<StateOp(Draw&)>& make) {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto backend = backend_case.make(2);
    int num_followers = 0;
    for (int seed = 1; seed <= num_seeds; ++seed) {
      CAPTURE(backend_case.name, seed);
      Draw draw(seed);
      const StateOp op = make(draw);
      const int block_size = 32;
      const std::vector<Sequence> sequences = DrawSequences(op, block_size, draw);
      StateRunner expected(*reference, op, sequences, block_size, /*shares=*/false, draw);
      expected.RunAtOnce();
      StateRunner ours(*backend, op, sequences, block_size, /*shares=*/true, draw);
      num_followers += ours.RunRandomly(draw);
      for (size_t r = 0; r < sequences.size(); ++r) {
        CAPTURE(r);
        CHECK(MaxError(ours.OutputOf(r), expected.OutputOf(r)) < backend_case.tolerance());
        CHECK(MaxError(ours.StatesOf(r), expected.StatesOf(r)) < 2e-5f);
      }
      CHECK(ours.LeftOthers());
    }
    CHECK(num_followers > 0);
  }
}

OwnedTensor Vector(Backend& backend, const std::vector<float>& numbers) {
  return Upload(backend, numbers, {std::ssize(numbers)}, DType::kF32);
}

template <size_t kCount>
int64_t OneOf(Draw& draw, const std::array<int64_t, kCount>& values) {
  return values[static_cast<size_t>(draw.Int(0, kCount - 1))];
}

}  // namespace

TEST_CASE("Convolve equals the reference under any schedule") {
  CheckOps(6, [](Draw& draw) {
    const int64_t kernel = draw.Int(1, 8), channels = draw.Int(1, 200), more = draw.Int(0, 3);
    const bool has_bias = draw.Int(0, 1) == 1, has_silu = draw.Int(0, 1) == 1;
    CAPTURE(kernel, channels, has_bias, has_silu);
    const auto weight = draw.Normals(kernel * channels), bias = draw.Normals(channels);
    return StateOp{
        .out_columns = channels,
        .state_size = (kernel - 1) * channels,
        .in_columns = {channels + more},
        .in_act = {true},
        .run = [=](Backend& backend, const std::vector<OwnedTensor>& in, const Tensor& out,
                   const StatePart& state, const AttentionPlan& plan) {
          const OwnedTensor taps = Upload(backend, weight, {kernel, channels}, DType::kF32);
          const OwnedTensor biases = Vector(backend, bias);
          backend.ops().Convolve(
              out, in[0].view().Columns(more, channels),
              {.weight = taps, .bias = has_bias ? biases.view() : Tensor(), .has_silu = has_silu},
              state, plan);
        }};
  });
}

TEST_CASE("DeltaRule equals the reference under any schedule") {
  CheckOps(8, [](Draw& draw) {
    const int64_t key_heads = draw.Int(1, 2), heads = key_heads * draw.Int(1, 2);
    const int64_t dk = OneOf<7>(draw, {6, 16, 33, 64, 128, 136, 256});
    const int64_t dv = OneOf<5>(draw, {5, 8, 32, 36, 64});
    const int64_t decays = draw.Int(0, 2) == 0 ? heads * dk : heads;
    const bool gates_act = draw.Int(0, 1) == 1;
    const auto a_log = draw.Normals(heads, 0.5f), dt_bias = draw.Normals(decays);
    return StateOp{
        .out_columns = heads * dv,
        .state_size = heads * dk * dv,
        .in_columns = {2 * key_heads * dk + heads * dv, heads + decays},
        .in_act = {true, gates_act},
        .run = [=](Backend& backend, const std::vector<OwnedTensor>& in, const Tensor& out,
                   const StatePart& state, const AttentionPlan& plan) {
          const OwnedTensor a = Vector(backend, a_log), dt = Vector(backend, dt_bias);
          backend.ops().DeltaRule(out, in[0], in[1],
                                  {.num_key_heads = key_heads,
                                   .num_value_heads = heads,
                                   .key_dim = dk,
                                   .value_dim = dv,
                                   .a_log = a,
                                   .dt_bias = dt},
                                  state, plan);
        }};
  });
}

TEST_CASE("StateScan equals the reference under any schedule") {
  CheckOps(6, [](Draw& draw) {
    const int64_t groups = draw.Int(1, 2), heads = groups * draw.Int(1, 3);
    const int64_t dim = OneOf<4>(draw, {5, 8, 36, 64});
    const int64_t states = OneOf<6>(draw, {7, 16, 64, 100, 128, 256});
    const int64_t inner = heads * dim;
    const bool dt_act = draw.Int(0, 1) == 1;
    const float dt_max = draw.Int(0, 1) == 1 ? 1.5f : INFINITY;
    const auto a_log = draw.Normals(heads, 0.5f), dt_bias = draw.Normals(heads),
               d = draw.Normals(heads);
    return StateOp{
        .out_columns = inner,
        .state_size = inner * states,
        .in_columns = {inner + 2 * groups * states, heads},
        .in_act = {true, dt_act},
        .run = [=](Backend& backend, const std::vector<OwnedTensor>& in, const Tensor& out,
                   const StatePart& state, const AttentionPlan& plan) {
          const OwnedTensor a = Vector(backend, a_log), bias = Vector(backend, dt_bias),
                            skip = Vector(backend, d);
          backend.ops().StateScan(out, in[0], in[1],
                                  {.num_heads = heads,
                                   .head_dim = dim,
                                   .num_groups = groups,
                                   .state_dim = states,
                                   .a_log = a,
                                   .dt_bias = bias,
                                   .d = skip,
                                   .dt_min = 0.1f,
                                   .dt_max = dt_max},
                                  state, plan);
        }};
  });
}

TEST_CASE("SelectiveScan equals the reference under any schedule") {
  CheckOps(6, [](Draw& draw) {
    const int64_t channels = OneOf<5>(draw, {1, 30, 64, 70, 132});
    const int64_t states = OneOf<4>(draw, {7, 16, 40, 130});
    const bool dt_act = draw.Int(0, 1) == 1, bc_act = draw.Int(0, 1) == 1;
    const auto dt_bias = draw.Normals(channels), d = draw.Normals(channels);
    auto a = draw.Normals(states * channels);
    for (float& number : a) number = -std::exp(number);
    return StateOp{
        .out_columns = channels,
        .state_size = channels * states,
        .in_columns = {channels, channels, 2 * states},
        .in_act = {true, dt_act, bc_act},
        .run = [=](Backend& backend, const std::vector<OwnedTensor>& in, const Tensor& out,
                   const StatePart& state, const AttentionPlan& plan) {
          const OwnedTensor decays = Upload(backend, a, {states, channels}, DType::kF32);
          const OwnedTensor bias = Vector(backend, dt_bias), skip = Vector(backend, d);
          backend.ops().SelectiveScan(out, in[0], in[1], in[2],
                                      {.a = decays, .dt_bias = bias, .d = skip}, state, plan);
        }};
  });
}

TEST_CASE("GatedNorm, GateBySigmoid and MultiplyBy equal the reference") {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto backend = backend_case.make(2);
    for (int seed = 1; seed <= 6; ++seed) {
      Draw draw(seed);
      const int64_t rows = draw.Int(1, 5), group = draw.Int(1, 300), groups = draw.Int(1, 3);
      const int64_t size = group * groups;
      const bool weighs_rows = draw.Int(0, 1) == 1, gates_first = draw.Int(0, 1) == 1,
                 has_sigmoid = draw.Int(0, 1) == 1, is_f32 = draw.Int(0, 1) == 1;
      CAPTURE(backend_case.name, seed, rows, group, groups, weighs_rows, gates_first, has_sigmoid);
      const auto x = draw.Normals(rows * size), gate = draw.Normals(rows * size, 2);
      const auto weight = draw.Normals(weighs_rows ? size : group);
      const auto run = [&](Backend& on) {
        const auto upload = [&](const std::vector<float>& numbers) {
          return Upload(on, numbers, {rows, size}, is_f32 ? DType::kF32 : on.activation_dtype());
        };
        const OwnedTensor gates = upload(gate), weights = Vector(on, weight);
        const OwnedTensor normed = UploadAct(on, x, {rows, size}), gated = upload(x),
                          gated_by_one = upload(x), product = upload(x);
        on.ops().GatedNorm(normed, normed, gates,
                           {.weight = weights,
                            .group_size = group,
                            .gates_first = gates_first,
                            .has_sigmoid = has_sigmoid});
        on.ops().GateBySigmoid(gated, gates);
        on.ops().GateBySigmoid(gated_by_one, gates.view().Columns(size / 2, 1));
        on.ops().MultiplyBy(product, gates);
        return std::array{Floats(on, normed), Floats(on, gated), Floats(on, gated_by_one),
                          Floats(on, product)};
      };
      const auto ours = run(*backend), expected = run(*reference);
      for (size_t i = 0; i < ours.size(); ++i) {
        CAPTURE(i);
        CHECK(MaxError(ours[i], expected[i]) < backend_case.tolerance());
      }
    }
  }
}

}  // namespace tandem
