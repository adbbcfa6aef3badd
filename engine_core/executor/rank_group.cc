#include "engine_core/executor/rank_group.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "engine_core/models/adapter_weights.h"
#include "kernels/kv_caches.h"

namespace tandem {
namespace {

// Before the lines of the ranks: RankGroupShape, which has to be read before the rest is mapped.
constexpr int64_t kShapeBytes = 128;
static_assert(sizeof(RankGroupShape) <= kShapeBytes);
static_assert(std::is_trivially_copyable_v<RankGroupShape>);

// The parts of the memory, far enough from each other for any model: untouched pages are free.
constexpr int64_t kPart = int64_t{1} << 40;
constexpr int64_t kHiddenBegin = kPart;
int64_t StageBegin(int stage) { return kPart * (2 + stage); }
int64_t KvBegin(const RankCounts& counts, int rank) {
  return StageBegin(counts.pipeline) + kPart * rank;
}

constexpr int64_t kAlign = 64;
int64_t Aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// A record: this, query_start [R + 1], context_len [R], num_drafts [R or 0], the numbers of the
// adapters, the rows of the host (where they are, and what else StepRows has), and
// StepInputs::numbers.
struct alignas(64) RecordHeader {
  int64_t step = 0;
  WeightsChange weights = WeightsChange::kNone;
  int32_t num_blocks = 0;
  int64_t numbers_per_block = 1;
  StepMode mode = StepMode::kRun;
  int32_t num_adapters = 0;
  bool has_drafts = false;
  StepRowCounts rows = {};
  StepShape shape = {};
};

// Rows of a step, one after another.
struct RowRun {
  int32_t first = 0, count = 0;
};

int64_t LengthsBytes(int64_t num_requests) {
  return Aligned((3 * num_requests + 1) * int64_t{sizeof(int32_t)});
}

int64_t AdaptersBytes(int64_t num_adapters) {
  return Aligned(num_adapters * int64_t{sizeof(int64_t)});
}

int64_t RowsBytes(const StepRowCounts& rows, int64_t num_tokens) {
  const int64_t num_positions =
      (rows.has_mrope_positions ? 3 * num_tokens : 0) + (rows.has_last_seen ? num_tokens : 0);
  return Aligned((rows.embedded + rows.deepstack) * int64_t{sizeof(RowRun)} +
                 num_positions * int64_t{sizeof(int32_t)});
}

StepRowCounts CountsOf(const StepRows& rows) {
  return {.embedded = static_cast<int32_t>(rows.embedded.size()),
          .deepstack = static_cast<int32_t>(rows.deepstack.size()),
          .has_mrope_positions = !rows.mrope_positions.empty(),
          .has_last_seen = !rows.last_seen.empty()};
}

// Where the parts of a record begin.
int64_t AdaptersBegin(const StepShape& shape) {
  return int64_t{sizeof(RecordHeader)} + LengthsBytes(shape.num_requests);
}
int64_t RowsBegin(const StepShape& shape, int64_t num_adapters) {
  return AdaptersBegin(shape) + AdaptersBytes(num_adapters);
}
int64_t NumbersBegin(const StepShape& shape, int64_t num_adapters, const StepRowCounts& rows) {
  return RowsBegin(shape, num_adapters) + RowsBytes(rows, shape.num_tokens);
}
// Of the step's numbers those that a record has.
StepShape WithoutWork(StepShape shape) {
  shape.attention_work = 0;
  return shape;
}
int64_t RecordBytes(const StepShape& shape, int64_t num_adapters, const StepRowCounts& rows) {
  return NumbersBegin(shape, num_adapters, rows) +
         StepInputs::NumNumbers(WithoutWork(shape)) * int64_t{sizeof(int32_t)};
}

int64_t RowSizeOf(const ExecutorLimits& limits, const ModelConfig& model) {
  const auto num_levels = static_cast<int64_t>(model.vision.deepstack_layers.size());
  if (limits.images) return model.hidden_size * (1 + num_levels);
  return limits.hidden_size > 0 ? model.hidden_size : 0;
}

// Of a step of num_tokens; each may be a run.
StepRowCounts MostRows(const ExecutorLimits& limits, int64_t row_size, int64_t num_tokens) {
  if (row_size == 0) return {};
  const auto most = static_cast<int32_t>(num_tokens);
  return {.embedded = most,
          .deepstack = limits.images ? most : 0,
          .has_mrope_positions = limits.images.has_value(),
          .has_last_seen = limits.images.has_value()};
}

// Writes where the rows are, and copies them there: to the columns from `begin` on.
RowRun* CopyRows(std::span<const EmbeddedRows> rows, const Tensor& to, int64_t begin, RowRun* run) {
  for (const EmbeddedRows& some : rows) {
    const int64_t count = some.values.rows();
    *run++ = {.first = static_cast<int32_t>(some.first), .count = static_cast<int32_t>(count)};
    ConvertTensor(to.Rows(some.first, count).Columns(begin, some.values.shape[1]), some.values);
  }
  return run;
}

int32_t* CopyNumbers(const Tensor& numbers, int32_t* to) {
  if (numbers.empty()) return to;
  return std::copy_n(numbers.Data<int32_t>(), numbers.NumElements(), to);
}

}  // namespace

std::string_view TextOf(RankWait wait) {
  switch (wait) {
    case RankWait::kStage:
      return "waits for the other ranks of its stage";
    case RankWait::kStageBefore:
      return "waits for the stage before";
    case RankWait::kNextStep:
      return "waits for the next step";
    case RankWait::kRoom:
      return "waits until a rank has taken an earlier step";
    case RankWait::kNothing:
      break;
  }
  return "";
}

RankPlace RankCounts::PlaceOf(int rank) const {
  return {.stage = {.rank = rank / tensor, .size = pipeline},
          .share = {.rank = rank % tensor, .size = tensor}};
}

RankGroupShape RankGroupShape::Of(const RankCounts& counts, const ExecutorLimits& limits,
                                  const ModelConfig& model, int64_t max_adapters, int spins,
                                  std::span<const int> state_layers) {
  const int64_t tokens = limits.max_num_batched_tokens;
  const StepShape most = {
      .num_tokens = tokens,
      .num_requests = limits.max_num_seqs,
      .num_logits_rows = tokens,
      .table_columns = (limits.max_model_len + limits.block_size - 1) / limits.block_size,
      .num_groups = limits.groups.count(),
      .has_adapters = max_adapters > 0,
      .has_token_types = limits.pooling.has_value()};
  const int64_t row_size = RowSizeOf(limits, model);
  RankGroupShape shape = {
      .counts = counts,
      .groups = limits.groups,
      .block_size = limits.block_size,
      .max_tokens = tokens,
      .hidden_size = model.hidden_size,
      .num_layer_inputs = model.num_layer_inputs(),
      .row_size = row_size,
      .max_record_bytes = RecordBytes(most, max_adapters, MostRows(limits, row_size, tokens)),
      .spins = spins};
  // The only stage has all states, and its first rank the head.
  if (counts.pipeline == 1) return shape;
  CHECK_LE(state_layers.size(), kMostStateLayers);
  std::ranges::copy(state_layers, shape.state_layers.begin());
  shape.num_state_layers = static_cast<int32_t>(state_layers.size());
  return shape;
}

StatusOr<std::unique_ptr<RankGroup>> RankGroup::Create(const RankGroupShape& shape) {
  ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("tandem-ranks", KvBegin(shape.counts, shape.counts.num_ranks())));
  std::unique_ptr<RankGroup> group(
      new RankGroup(std::move(memory), shape, shape.counts.output_rank()));
  RETURN_IF_ERROR(group->MapAll());
  std::memcpy(group->control_.get(), &shape, sizeof shape);
  return group;
}

StatusOr<std::unique_ptr<RankGroup>> RankGroup::Open(UniqueFd file, int rank) {
  SharedMemory memory = SharedMemory::Open(std::move(file));
  ASSIGN_OR_RETURN(const SharedMemory::Mapping first, memory.Map(0, kShapeBytes));
  RankGroupShape shape;
  std::memcpy(&shape, first.get(), sizeof shape);
  CHECK(rank >= 0 && rank < shape.counts.num_ranks() && rank != shape.counts.output_rank()) << rank;
  std::unique_ptr<RankGroup> group(new RankGroup(std::move(memory), shape, rank));
  RETURN_IF_ERROR(group->MapAll());
  return group;
}

RankGroup::RankGroup(SharedMemory memory, const RankGroupShape& shape, int rank)
    : memory_(std::move(memory)), shape_(shape), rank_(rank), place_(shape.counts.PlaceOf(rank)) {}

// One step more than can be in flight, what follows each of those, and the record of a KV cache.
RingShape RankGroup::ring_shape() const {
  return {.num_readers = counts().num_ranks() - 1,
          .num_slots = 2 * counts().pipeline + 2,
          .slot_bytes = shape_.max_record_bytes};
}

Status RankGroup::MapAll() {
  const int64_t lines_bytes = counts().num_ranks() * int64_t{sizeof(RankLine)};
  const int64_t stages_bytes = counts().pipeline * int64_t{sizeof(StageLine)};
  const int64_t stages_begin = kShapeBytes + lines_bytes;
  const int64_t place_begin = stages_begin + stages_bytes;
  const int64_t ring_begin = place_begin + int64_t{sizeof(MeetingPlace)};
  ASSIGN_OR_RETURN(control_, memory_.Map(0, ring_begin + BroadcastRing::BytesOf(ring_shape())));
  lines_ = reinterpret_cast<RankLine*>(control_.get() + kShapeBytes);
  stages_ = reinterpret_cast<StageLine*>(control_.get() + stages_begin);
  meeting_place_ = reinterpret_cast<MeetingPlace*>(control_.get() + place_begin);
  const bool writes = rank_ == counts().output_rank();
  ring_.emplace(ring_shape(), control_.get() + ring_begin, shape_.spins,
                MarkOf(writes ? RankWait::kRoom : RankWait::kNextStep));
  ASSIGN_OR_RETURN(hidden_, memory_.Map(kHiddenBegin, counts().pipeline * step_bytes()));
  ASSIGN_OR_RETURN(communicator_, SharedCommunicator::Create(
                                      {&memory_, StageBegin(place_.stage.rank)}, place_.share.rank,
                                      place_.share.size, shape_.spins, MarkOf(RankWait::kStage)));
  return OkStatus();
}

// ---- the output rank ----

RankGroup::PublishedStep RankGroup::PublishStep(const StepInputs& inputs, const StepLayout& layout,
                                                const StepRows& rows, StepMode mode) {
  return Publish(++num_published_, inputs, layout, rows, mode);
}

RankGroup::PublishedStep RankGroup::PublishTakenDrafts(const StepInputs& inputs,
                                                       const StepLayout& layout, int64_t step) {
  return Publish(step, inputs, layout, {}, StepMode::kTakeInDrafts);
}

RankGroup::PublishedStep RankGroup::Publish(int64_t step, const StepInputs& inputs,
                                            const StepLayout& layout, const StepRows& rows,
                                            StepMode mode) {
  const auto num_adapters = static_cast<int32_t>(layout.adapters.size());
  const RecordHeader header = {.step = step,
                               .mode = mode,
                               .num_adapters = num_adapters,
                               .has_drafts = !layout.num_drafts.empty(),
                               .rows = CountsOf(rows),
                               .shape = inputs.shape()};
  lines_[rank_].step.store(header.step, std::memory_order_relaxed);
  const int64_t num_bytes = RecordBytes(header.shape, num_adapters, header.rows);
  CHECK_LE(num_bytes, shape_.max_record_bytes);
  std::byte* to = ring_->BeginWrite().data();
  if (to == nullptr) return {header.step, inputs.host()};  // abandoned
  std::memcpy(to, &header, sizeof header);
  auto* lengths = reinterpret_cast<int32_t*>(to + sizeof header);
  lengths = std::ranges::copy(layout.query_start, lengths).out;
  lengths = std::ranges::copy(layout.context_len, lengths).out;
  std::ranges::copy(layout.num_drafts, lengths);
  auto* adapters = reinterpret_cast<int64_t*>(to + AdaptersBegin(header.shape));
  for (const auto& adapter : layout.adapters) *adapters++ = adapter->number();
  std::byte* const listed = to + RowsBegin(header.shape, num_adapters);
  auto* runs = reinterpret_cast<RowRun*>(listed);
  runs = CopyRows(rows.embedded, HostRowsOf(header.step), 0, runs);
  runs = CopyRows(rows.deepstack, HostRowsOf(header.step), shape_.hidden_size, runs);
  auto* positions = reinterpret_cast<int32_t*>(runs);
  positions = CopyNumbers(rows.mrope_positions, positions);
  CopyNumbers(rows.last_seen, positions);
  auto* numbers =
      reinterpret_cast<int32_t*>(to + NumbersBegin(header.shape, num_adapters, header.rows));
  std::ranges::copy(inputs.numbers(), numbers);
  ring_->EndWrite(num_bytes);
  return {.number = header.step,
          .inputs = StepInputs::ViewsOf(WithoutWork(header.shape), numbers),
          .rows = ListRows(header.step, header.rows, header.shape.num_tokens, listed)};
}

ListedStepRows RankGroup::ListRows(int64_t step, const StepRowCounts& has, int64_t num_tokens,
                                   std::byte* listed) const {
  ListedStepRows rows;
  const auto* run = reinterpret_cast<const RowRun*>(listed);
  const auto list = [&](int32_t num_runs, Slice columns, std::vector<EmbeddedRows>* out) {
    for (int32_t i = 0; i < num_runs; ++i, ++run) {
      const Tensor values = HostRowsOf(step).Rows(run->first, run->count);
      out->push_back({run->first, values.Columns(columns.begin, columns.count)});
    }
  };
  const int64_t hidden = shape_.hidden_size;
  list(has.embedded, {0, hidden}, &rows.embedded);
  list(has.deepstack, {hidden, shape_.row_size - hidden}, &rows.deepstack);
  auto* positions = reinterpret_cast<int32_t*>(const_cast<RowRun*>(run));  // views have no const
  if (has.has_mrope_positions) {
    rows.mrope_positions = Tensor(positions, DType::kI32, {3, num_tokens});
    positions += 3 * num_tokens;
  }
  if (has.has_last_seen) rows.last_seen = Tensor(positions, DType::kI32, {num_tokens});
  return rows;
}

void RankGroup::PublishChange(WeightsChange weights, int32_t num_blocks,
                              int64_t numbers_per_block) {
  const RecordHeader header = {
      .weights = weights, .num_blocks = num_blocks, .numbers_per_block = numbers_per_block};
  std::byte* to = ring_->BeginWrite().data();
  if (to == nullptr) return;
  std::memcpy(to, &header, sizeof header);
  ring_->EndWrite(sizeof header);
}

void RankGroup::PublishKvCache(int32_t num_blocks, int64_t numbers_per_block) {
  PublishChange(WeightsChange::kNone, num_blocks, numbers_per_block);
}

void RankGroup::PublishWeights(WeightsChange change) {
  ++num_changes_;
  PublishChange(change);
}

Status RankGroup::AwaitWeights() {
  Status all = OkStatus();
  for (int rank = 0; rank < counts().num_ranks(); ++rank) {
    if (rank == rank_) continue;
    RankLine& line = lines_[rank];
    for (uint32_t seen = line.num_changes.load(); seen != num_changes_;
         seen = line.num_changes.load()) {
      RETURN_IF_ERROR(status());
      FutexWait(line.num_changes, seen, kFutexPatienceMs);
    }
    if (all.ok() && line.change_failed.load() != 0) {
      all = UnavailableError("rank " + std::to_string(rank) +
                             " could not load its part of the model: its log says why");
    }
  }
  return all;
}

StatusOr<int64_t> RankGroup::LeastFreeBytes() {
  PublishWeights(WeightsChange::kReportMemory);
  RETURN_IF_ERROR(AwaitWeights());
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < counts().num_ranks(); ++rank) {
    if (rank != rank_) least = std::min(least, lines_[rank].free_bytes.load());
  }
  return least;
}

void RankGroup::EndWeightsChange(bool failed) {
  lines_[rank_].change_failed.store(failed ? 1 : 0);
  lines_[rank_].num_changes.fetch_add(1);
  FutexWakeAll(lines_[rank_].num_changes);
}

// ---- the other ranks ----

std::optional<RankGroup::Record> RankGroup::Read() {
  const std::span<const std::byte> bytes = ring_->Read(reader());
  if (bytes.empty()) return std::nullopt;
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  Record record = {.step = header.step,
                   .weights = header.weights,
                   .num_blocks = header.num_blocks,
                   .numbers_per_block = header.numbers_per_block};
  if (record.step == 0) return record;
  lines_[rank_].step.store(record.step, std::memory_order_relaxed);
  const auto num_requests = static_cast<size_t>(header.shape.num_requests);
  const auto* lengths = reinterpret_cast<const int32_t*>(bytes.data() + sizeof header);
  record.lengths = {
      .query_start = {lengths, num_requests + 1},
      .context_len = {lengths + num_requests + 1, num_requests},
      .num_drafts = {lengths + 2 * num_requests + 1, header.has_drafts ? num_requests : 0}};
  record.adapters = {reinterpret_cast<const int64_t*>(bytes.data() + AdaptersBegin(header.shape)),
                     static_cast<size_t>(header.num_adapters)};
  record.mode = header.mode;
  record.shape = header.shape;
  // Views have no const; nothing writes here but the output rank.
  auto* const data = const_cast<std::byte*>(bytes.data());
  record.rows = ListRows(header.step, header.rows, header.shape.num_tokens,
                         data + RowsBegin(header.shape, header.num_adapters));
  auto* numbers = reinterpret_cast<int32_t*>(
      data + NumbersBegin(header.shape, header.num_adapters, header.rows));
  const StepShape shape = WithoutWork(header.shape);
  record.inputs = StepInputs::ViewsOf(shape, numbers);
  record.numbers = {numbers, static_cast<size_t>(StepInputs::NumNumbers(shape))};
  return record;
}

void RankGroup::Release() { ring_->Release(reader()); }

// ---- all ----

Status RankGroup::Join(Backend* backend) {
  if (backend->device().memory_is_host() || place_.share.size == 1) return OkStatus();
  std::string place;
  if (rank_ == counts().output_rank()) {
    ASSIGN_OR_RETURN(place, backend->MakeMeetingPlace());
    PublishPlace(place);
  } else {
    ASSIGN_OR_RETURN(place, AwaitPlace());
  }
  return backend->JoinRanks(place_.share.rank, place_.share.size, place);
}

void RankGroup::PublishPlace(const std::string& place) {
  CHECK(!place.empty() && place.size() <= MeetingPlace::kMostBytes) << place.size();
  std::ranges::copy(place, meeting_place_->bytes.begin());
  meeting_place_->num_bytes.store(static_cast<uint32_t>(place.size()));
  FutexWakeAll(meeting_place_->num_bytes);
}

StatusOr<std::string> RankGroup::AwaitPlace() {
  while (meeting_place_->num_bytes.load() == 0) {
    RETURN_IF_ERROR(status());
    FutexWait(meeting_place_->num_bytes, 0, kFutexPatienceMs);
  }
  return std::string(meeting_place_->bytes.data(), meeting_place_->num_bytes.load());
}

Tensor RankGroup::AwaitHidden(int64_t step, int64_t num_tokens) {
  if (!place_.stage.is_first()) {
    StageLine& before = stages_[place_.stage.rank - 1];
    const auto wanted = static_cast<uint32_t>(step);
    const auto is_there = [&] {
      return static_cast<int32_t>(before.num_steps.load() - wanted) >= 0;
    };
    for (int i = 0; i < shape_.spins && !is_there(); ++i) CpuRelax();
    const WaitMark mark = MarkOf(RankWait::kStageBefore);
    mark.Begin();
    while (!is_there() && !ring_->abandoned()) {
      before.num_asleep.fetch_add(1);
      const uint32_t seen = before.num_steps.load();
      if (!is_there()) FutexWait(before.num_steps, seen, kFutexPatienceMs);
      before.num_asleep.fetch_sub(1);
    }
    mark.End();
  }
  return PartOf(step, num_tokens, 0, shape_.hidden_size);
}

Tensor RankGroup::LayerInputsOf(int64_t step, int64_t num_tokens) const {
  if (shape_.num_layer_inputs == 0) return {};
  return PartOf(step, num_tokens, shape_.hidden_size, shape_.num_layer_inputs);
}

Tensor RankGroup::StatesOf(int64_t step, int64_t num_tokens, DType dtype) const {
  if (shape_.num_state_layers == 0) return {};
  const Tensor room = PartOf(step, num_tokens, numbers_before_states(), states_width());
  return Tensor(room.data, dtype, {num_tokens, states_width()});
}

Tensor RankGroup::PartOf(int64_t step, int64_t num_tokens, int64_t numbers_before,
                         int64_t size) const {
  std::byte* const begin = hidden_.get() + step % counts().pipeline * step_bytes();
  return Tensor(begin + shape_.max_tokens * numbers_before * int64_t{sizeof(float)}, DType::kF32,
                {num_tokens, size});
}

Status RankGroup::PlaceKvCache(int rank, const KvCache& cache) const {
  return memory_.Place(KvBegin(counts(), rank), MemoryOf(cache), cache.num_bytes());
}

void RankGroup::EndStage(int64_t step) {
  if (!place_.share.is_first() || place_.stage.is_last()) return;
  StageLine& own = stages_[place_.stage.rank];
  own.num_steps.store(static_cast<uint32_t>(step));
  if (own.num_asleep.load() > 0) FutexWakeAll(own.num_steps);
}

void RankGroup::Abandon() {
  ring_->Abandon();
  communicator_->Abandon();
}

Status RankGroup::status() {
  if (ring_->abandoned()) return UnavailableError("another rank of the model is lost");
  return OkStatus();
}

}  // namespace tandem
