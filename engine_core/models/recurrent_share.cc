#include "engine_core/models/recurrent_share.h"

namespace tandem {
namespace {

// How many items of one kind the heads of a layer are cut by, and what they are.
struct Unit {
  int64_t count = 0;
  const char* name = "";
};

Unit UnitOf(const RecurrentConfig& config) {
  switch (config.kind) {
    case RecurrentKind::kDelta:
      return {config.num_key_heads, "linear_num_key_heads"};
    case RecurrentKind::kChannelDelta:
    case RecurrentKind::kScan:
      return {config.num_value_heads, "number of heads in recurrent layers"};
    case RecurrentKind::kSelective:
      return {config.num_value_heads, "number of channels in recurrent layers"};
    case RecurrentKind::kShortConv:
    case RecurrentKind::kNone:
      break;
  }
  return {config.hidden_size, "hidden_size"};
}

// Channels that are a query and a key for each key head, then the values.
void AddDeltaChannels(const RecurrentConfig& config, RankShare share, RecurrentShare* result) {
  const int64_t keys = config.key_size();
  const Slice own = share.Of(keys);
  result->channels = {own, own.Shifted(keys)};
  for (const Slice& run : result->values) result->channels.push_back(run.Shifted(2 * keys));
}

// Channels that are the values, then B and C of each group.
void AddScanChannels(const RecurrentConfig& config, RankShare share, RecurrentShare* result) {
  const int64_t inner = config.value_size(), all = config.num_groups * config.key_dim;
  const int64_t of_group = config.num_value_heads / config.num_groups;  // heads
  const Slice heads = result->heads[0];
  const int64_t first = heads.begin / of_group, last = (heads.end() - 1) / of_group;
  const int64_t num_groups = last - first + 1;
  const Slice b = {inner + first * config.key_dim, num_groups * config.key_dim};
  result->channels = {result->values[0], b, b.Shifted(all)};
  result->own.num_groups = num_groups;
  result->norms_across = config.has_norm && config.num_groups % share.size != 0;
}

}  // namespace

RecurrentShare RecurrentShareOf(const RecurrentConfig& config, RankShare share) {
  RecurrentShare result = {.own = config, .heads = {}, .values = {}, .channels = {}};
  if (config.kind != RecurrentKind::kSelective) {  // which has one, of all channels
    result.own.num_key_heads = share.Of(config.num_key_heads).count;
  }
  result.own.num_value_heads = share.Of(config.num_value_heads).count;
  const int64_t of_turn = config.num_value_heads / config.num_turns();
  for (int64_t turn = 0; turn < config.num_turns(); ++turn) {
    const Slice heads = share.Of(of_turn).Shifted(turn * of_turn);
    result.heads.push_back(heads);
    result.values.push_back({heads.begin * config.value_dim, heads.count * config.value_dim});
  }
  switch (config.kind) {
    case RecurrentKind::kDelta:
    case RecurrentKind::kChannelDelta:
      AddDeltaChannels(config, share, &result);
      break;
    case RecurrentKind::kScan:
      AddScanChannels(config, share, &result);
      break;
    case RecurrentKind::kSelective:
      result.channels = result.values;
      break;
    case RecurrentKind::kShortConv:
      result.channels = result.values = {share.Of(config.hidden_size)};
      result.own.hidden_size = result.channels[0].count;
      break;
    case RecurrentKind::kNone:
      break;
  }
  return result;
}

Status CheckRecurrentRanks(const RecurrentConfig& config, int num_ranks, const std::string& flag) {
  const Unit unit = UnitOf(config);
  if (unit.count % num_ranks != 0) {
    return InvalidArgumentError(flag + ": must divide the model's " + unit.name + ", which is " +
                                std::to_string(unit.count));
  }
  const int64_t groups = config.num_groups;
  if (groups % num_ranks != 0 && num_ranks % groups != 0) {
    return InvalidArgumentError(
        flag + ": must divide the number of groups in recurrent layers or be a multiple of it, " +
        "which is " + std::to_string(groups));
  }
  return OkStatus();
}

}  // namespace tandem
