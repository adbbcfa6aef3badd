#include "engine_core/models/recurrent_layer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "engine_core/models/load_packed.h"
#include "engine_core/models/recurrent_share.h"
#include "engine_core/weights/number_type.h"
#include "kernels/elementary_functions.h"

namespace tandem {
namespace {

using Blocks = std::vector<StoredMatrix>;

using Runs = std::vector<Slice>;

const LinearOptions kExact = {.format = WeightFormat::kCompute};
const LinearOptions kUnadapted = {.format = WeightFormat::kCompute,
                                  .adapted_as = AdaptedAs::kNothing};

int64_t NumIn(const Runs& runs) {
  return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                         [](int64_t sum, const Slice& run) { return sum + run.count; });
}

// Rows of a module. Those that follow the last block's are part of it.
void AddRows(const std::string& name, int64_t rows, int64_t columns, Slice part, Blocks* blocks) {
  StoredMatrix* last = blocks->empty() ? nullptr : &blocks->back();
  if (last != nullptr && last->name == name && last->row_slice->end() == part.begin) {
    last->row_slice->count += part.count;
    return;
  }
  blocks->push_back({.name = name, .rows = rows, .columns = columns, .row_slice = part});
}

void AddRuns(const std::string& name, int64_t rows, int64_t columns, const Runs& runs, int64_t by,
             Blocks* blocks) {
  for (const Slice& run : runs) AddRows(name, rows, columns, run.Shifted(by), blocks);
}

// Rows `part` of some of the equal groups of a module's rows.
void AddOfGroups(const std::string& name, int64_t rows, int64_t columns, int64_t num_groups,
                 Slice groups, Slice part, Blocks* blocks) {
  for (int64_t g = groups.begin; g < groups.end(); ++g) {
    AddRows(name, rows, columns, part.Shifted(rows / num_groups * g), blocks);
  }
}

// What channel c of the convolution is multiplied by.
float ScaleOfChannel(const RecurrentConfig& shape, int64_t c) {
  const int64_t x = shape.value_size(), b = shape.num_groups * shape.key_dim;
  return static_cast<float>(shape.in_scales[c < x ? 1 : c < x + b ? 2 : 3]);
}

using ReadAll = std::function<Status(const std::string& name, std::span<float> out)>;

// One layer's, of one rank.
class LayerLoader {
 public:
  LayerLoader(const LoadContext& context, const std::string& prefix)
      : context_(context),
        prefix_(prefix),
        shape_(context.config.recurrent),
        share_(RecurrentShareOf(shape_, context.share)),
        hidden_(context.config.hidden_size) {}

  StatusOr<RecurrentLayer> LoadDelta();
  StatusOr<RecurrentLayer> LoadChannelDelta();
  StatusOr<RecurrentLayer> LoadScan();
  StatusOr<RecurrentLayer> LoadSelective();
  StatusOr<RecurrentLayer> LoadShortConv();

 private:
  std::string Name(const char* name) const { return prefix_ + name; }
  Blocks DeltaBlocks() const;
  Blocks DeltaGateBlocks() const;
  // Some rows of one module.
  StatusOr<LinearLayer> LoadSome(const char* name, int64_t rows, int64_t columns, const Runs& runs,
                                 const LinearOptions& options = {}) const;
  // The projection back.
  StatusOr<LinearLayer> LoadOut(const char* name, int64_t columns, bool has_bias = false) const {
    return LoadRows(context_, Name(name), hidden_, columns, has_bias);
  }
  // Some numbers of a vector of `size`.
  StatusOr<OwnedTensor> LoadSome(const char* name, int64_t size, const Runs& runs) const;
  StatusOr<OwnedTensor> LoadSome(const char* name, int64_t size, const Runs& runs,
                                 const ReadAll& read) const;
  // The same, where a file may have it in another shape, such as [1, 1, n, 1].
  StatusOr<OwnedTensor> LoadFlat(const char* name, int64_t size, const Runs& runs) const;
  // Convolutions stored as [channels, 1, kernel] side by side, as [kernel, own channels]. Scales
  // of what goes in are put into them.
  StatusOr<OwnedTensor> LoadTaps(const std::vector<std::string>& names) const;
  Status LoadConv(const char* name, RecurrentLayer* layer) const;
  // A_log [V, state_dim] as how fast each number decays, turned.
  StatusOr<OwnedTensor> LoadDecays(const char* name) const;

  const LoadContext& context_;
  const std::string& prefix_;
  const RecurrentConfig& shape_;
  const RecurrentShare share_;
  const int64_t hidden_;
};

// Qwen3-Next has q, k, v and z side by side for each key head; they are sorted here.
Blocks LayerLoader::DeltaBlocks() const {
  const std::string merged = Name(".in_proj_qkvz");
  Blocks blocks;
  if (!context_.weights.Has(merged + ".weight")) {
    AddRuns(Name(".in_proj_qkv"), shape_.channels(), hidden_, share_.channels, 0, &blocks);
    AddRuns(Name(".in_proj_z"), shape_.value_size(), hidden_, share_.values, 0, &blocks);
    return blocks;
  }
  const int64_t rows = shape_.channels() + shape_.value_size(), num_keys = shape_.num_key_heads;
  const int64_t keys = shape_.key_dim, values = shape_.value_size() / num_keys;  // of a key head
  int64_t first = 0;
  for (const int64_t count : {keys, keys, values, values}) {
    AddOfGroups(merged, rows, hidden_, num_keys, context_.share.Of(num_keys), {first, count},
                &blocks);
    first += count;
  }
  return blocks;
}

Blocks LayerLoader::DeltaGateBlocks() const {
  const int64_t heads = shape_.num_value_heads, num_keys = shape_.num_key_heads;
  const std::string merged = Name(".in_proj_ba");
  Blocks blocks;
  if (!context_.weights.Has(merged + ".weight")) {
    for (const Slice& of_turn : share_.heads) {
      AddRows(Name(".in_proj_b"), heads, hidden_, of_turn, &blocks);
      AddRows(Name(".in_proj_a"), heads, hidden_, of_turn, &blocks);
    }
    return blocks;
  }
  const int64_t of_key = heads / num_keys;
  for (const int64_t first : {int64_t{0}, of_key}) {
    AddOfGroups(merged, 2 * heads, hidden_, num_keys, context_.share.Of(num_keys), {first, of_key},
                &blocks);
  }
  return blocks;
}

StatusOr<LinearLayer> LayerLoader::LoadSome(const char* name, int64_t rows, int64_t columns,
                                            const Runs& runs, const LinearOptions& options) const {
  Blocks blocks;
  AddRuns(Name(name), rows, columns, runs, 0, &blocks);
  return LoadLinear(context_, blocks, options);
}

StatusOr<OwnedTensor> LayerLoader::LoadSome(const char* name, int64_t size,
                                            const Runs& runs) const {
  return LoadSome(name, size, runs, [&](const std::string& stored, std::span<float> out) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor tensor, context_.weights.Get(stored, 0, size));
    ConvertTensor(Tensor(out.data(), DType::kF32, {size}), tensor.view());
    return OkStatus();
  });
}

StatusOr<OwnedTensor> LayerLoader::LoadSome(const char* name, int64_t size, const Runs& runs,
                                            const ReadAll& read) const {
  const std::string full = Name(name);
  return LoadNumbers(context_, full, 0, NumIn(runs), [&](float* out) -> Status {
    std::vector<float> all(static_cast<size_t>(size));
    RETURN_IF_ERROR(read(full, all));
    for (const Slice& run : runs) out = std::copy_n(all.begin() + run.begin, run.count, out);
    return OkStatus();
  });
}

StatusOr<OwnedTensor> LayerLoader::LoadFlat(const char* name, int64_t size,
                                            const Runs& runs) const {
  const StatusOr<StoredTensor> stored = context_.weights.GetStored(Name(name));
  if (!stored.ok() || stored->num_elements() != size) return LoadSome(name, size, runs);
  if (!IsNumberType(stored->dtype())) {
    return InvalidArgumentError(context_.weights.PlaceOf(Name(name)) + " has dtype " +
                                stored->dtype() + ", must be F64, F32, F16 or BF16");
  }
  return LoadSome(name, size, runs, [&](const std::string&, std::span<float> out) -> Status {
    std::ranges::copy(FloatsOf(*stored), out.begin());
    return OkStatus();
  });
}

StatusOr<OwnedTensor> LayerLoader::LoadTaps(const std::vector<std::string>& names) const {
  const int64_t kernel = shape_.kernel, num_own = NumIn(share_.channels);
  const int64_t of_name = shape_.channels() / static_cast<int64_t>(names.size());
  return LoadNumbers(context_, names[0], kernel, num_own, [&](float* taps) -> Status {
    std::vector<float> stored(static_cast<size_t>(kernel));
    int64_t own = 0;
    for (const Slice& run : share_.channels) {
      for (int64_t c = run.begin; c < run.end(); ++c, ++own) {
        const std::string& name = names[static_cast<size_t>(c / of_name)];
        ASSIGN_OR_RETURN(const WeightTensor tensor,
                         context_.weights.GetFromStack(name, c % of_name, of_name, 1, kernel));
        ConvertTensor(Tensor(stored.data(), DType::kF32, {1, kernel}), tensor.view());
        const float scale = ScaleOfChannel(shape_, c);
        for (int64_t j = 0; j < kernel; ++j) {
          taps[j * num_own + own] = scale * stored[static_cast<size_t>(j)];
        }
      }
    }
    return OkStatus();
  });
}

Status LayerLoader::LoadConv(const char* name, RecurrentLayer* layer) const {
  ASSIGN_OR_RETURN(layer->conv, LoadTaps({Name(name) + ".weight"}));
  if (!shape_.has_conv_bias) return OkStatus();
  const std::string bias = std::string(name) + ".bias";
  ASSIGN_OR_RETURN(layer->conv_bias, LoadSome(bias.c_str(), shape_.channels(), share_.channels));
  return OkStatus();
}

StatusOr<OwnedTensor> LayerLoader::LoadDecays(const char* name) const {
  const int64_t channels = shape_.value_size(), states = shape_.key_dim;
  const Slice own = share_.values[0];
  return LoadNumbers(context_, Name(name), states, own.count, [&](float* decays) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor stored, context_.weights.Get(Name(name), channels, states));
    std::vector<float> row(static_cast<size_t>(states));
    for (int64_t c = 0; c < own.count; ++c) {
      ConvertTensor(Tensor(row.data(), DType::kF32, {1, states}),
                    stored.view().Rows(own.begin + c, 1));
      for (int64_t n = 0; n < states; ++n) {
        decays[n * own.count + c] = -ExpOf<FloatOps>(row[static_cast<size_t>(n)]);
      }
    }
    return OkStatus();
  });
}

StatusOr<RecurrentLayer> LayerLoader::LoadDelta() {
  const int64_t heads = shape_.num_value_heads;
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, LoadLinear(context_, DeltaBlocks()));
  ASSIGN_OR_RETURN(layer.gates, LoadLinear(context_, DeltaGateBlocks(), kExact));
  RETURN_IF_ERROR(LoadConv(".conv1d", &layer));
  ASSIGN_OR_RETURN(layer.a_log, LoadSome(".A_log", heads, share_.heads));
  ASSIGN_OR_RETURN(layer.dt_bias, LoadSome(".dt_bias", heads, share_.heads));
  ASSIGN_OR_RETURN(layer.norm, LoadVector(context_, Name(".norm.weight"), shape_.value_dim));
  ASSIGN_OR_RETURN(layer.out, LoadOut(".out_proj", shape_.value_size()));
  return layer;
}

// Kimi Linear's layers, whose names are those of attention.
StatusOr<RecurrentLayer> LayerLoader::LoadChannelDelta() {
  const int64_t values = shape_.value_size(), dim = shape_.value_dim;
  const int64_t heads = shape_.num_value_heads;
  Blocks in;
  for (const char* name : {".q_proj", ".k_proj", ".v_proj"}) {
    AddRuns(Name(name), values, hidden_, share_.values, 0, &in);
  }
  for (const char* name : {".f_a_proj", ".g_a_proj"}) {
    AddRows(Name(name), dim, hidden_, {0, dim}, &in);
  }
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, LoadLinear(context_, in));
  ASSIGN_OR_RETURN(layer.gates, LoadSome(".b_proj", heads, hidden_, share_.heads, kExact));
  ASSIGN_OR_RETURN(layer.decay, LoadSome(".f_b_proj", values, dim, share_.values, kUnadapted));
  ASSIGN_OR_RETURN(layer.gate, LoadSome(".g_b_proj", values, dim, share_.values, kUnadapted));
  ASSIGN_OR_RETURN(layer.conv, LoadTaps({Name(".q_conv1d.weight"), Name(".k_conv1d.weight"),
                                         Name(".v_conv1d.weight")}));
  ASSIGN_OR_RETURN(layer.a_log, LoadFlat(".A_log", heads, share_.heads));
  ASSIGN_OR_RETURN(layer.dt_bias, LoadFlat(".dt_bias", values, share_.values));
  ASSIGN_OR_RETURN(layer.norm, LoadVector(context_, Name(".o_norm.weight"), dim));
  ASSIGN_OR_RETURN(layer.out, LoadOut(".o_proj", values));
  return layer;
}

StatusOr<RecurrentLayer> LayerLoader::LoadScan() {
  const int64_t values = shape_.value_size(), channels = shape_.channels();
  const int64_t heads = shape_.num_value_heads, rows = values + channels + heads;
  Blocks in;
  AddRuns(Name(".in_proj"), rows, hidden_, share_.values, 0, &in);
  AddRuns(Name(".in_proj"), rows, hidden_, share_.channels, values, &in);
  AddRuns(Name(".in_proj"), rows, hidden_, share_.heads, values + channels, &in);
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, LoadLinear(context_, in));
  RETURN_IF_ERROR(LoadConv(".conv1d", &layer));
  ASSIGN_OR_RETURN(layer.a_log, LoadSome(".A_log", heads, share_.heads));
  ASSIGN_OR_RETURN(layer.dt_bias, LoadSome(".dt_bias", heads, share_.heads));
  ASSIGN_OR_RETURN(layer.d, LoadSome(".D", heads, share_.heads));
  if (shape_.has_norm) {
    const Runs all = {{0, values}};
    ASSIGN_OR_RETURN(layer.norm,
                     LoadSome(".norm.weight", values, share_.norms_across ? all : share_.values));
  }
  ASSIGN_OR_RETURN(layer.out, LoadOut(".out_proj", values));
  return layer;
}

// Jamba's layers. The steps, B and C are made from all channels, by each rank.
StatusOr<RecurrentLayer> LayerLoader::LoadSelective() {
  const int64_t inner = shape_.value_size(), rank = shape_.step_rank, states = shape_.key_dim;
  Blocks in;
  AddRuns(Name(".in_proj"), 2 * inner, hidden_, share_.channels, 0, &in);
  AddRuns(Name(".in_proj"), 2 * inner, hidden_, share_.values, inner, &in);
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, LoadLinear(context_, in));
  ASSIGN_OR_RETURN(layer.select, LoadSome(".x_proj", rank + 2 * states, inner,
                                          {{0, rank + 2 * states}}, kUnadapted));
  ASSIGN_OR_RETURN(layer.step, LoadSome(".dt_proj", inner, rank, share_.values, kUnadapted));
  ASSIGN_OR_RETURN(layer.dt_bias, LoadSome(".dt_proj.bias", inner, share_.values));
  ASSIGN_OR_RETURN(layer.dt_norm, LoadVector(context_, Name(".dt_layernorm.weight"), rank));
  ASSIGN_OR_RETURN(layer.b_norm, LoadVector(context_, Name(".b_layernorm.weight"), states));
  ASSIGN_OR_RETURN(layer.c_norm, LoadVector(context_, Name(".c_layernorm.weight"), states));
  RETURN_IF_ERROR(LoadConv(".conv1d", &layer));
  ASSIGN_OR_RETURN(layer.a, LoadDecays(".A_log"));
  ASSIGN_OR_RETURN(layer.d, LoadSome(".D", inner, share_.values));
  ASSIGN_OR_RETURN(layer.out, LoadOut(".out_proj", inner));
  return layer;
}

StatusOr<RecurrentLayer> LayerLoader::LoadShortConv() {
  Blocks in;
  for (int64_t part = 0; part < 3; ++part) {
    AddRuns(Name(".in_proj"), 3 * hidden_, hidden_, share_.channels, part * hidden_, &in);
  }
  const bool has_bias = shape_.has_conv_bias;  // which the projections have, too
  RecurrentLayer layer;
  ASSIGN_OR_RETURN(layer.in, LoadLinear(context_, in, {.has_bias = has_bias}));
  RETURN_IF_ERROR(LoadConv(".conv", &layer));
  ASSIGN_OR_RETURN(layer.out, LoadOut(".out_proj", hidden_, has_bias));
  return layer;
}

}  // namespace

StatusOr<RecurrentLayer> LoadRecurrentLayer(const LoadContext& context, const std::string& prefix) {
  LayerLoader loader(context, prefix);
  switch (context.config.recurrent.kind) {
    case RecurrentKind::kDelta:
      return loader.LoadDelta();
    case RecurrentKind::kChannelDelta:
      return loader.LoadChannelDelta();
    case RecurrentKind::kScan:
      return loader.LoadScan();
    case RecurrentKind::kSelective:
      return loader.LoadSelective();
    case RecurrentKind::kShortConv:
    case RecurrentKind::kNone:
      break;
  }
  return loader.LoadShortConv();
}

}  // namespace tandem
