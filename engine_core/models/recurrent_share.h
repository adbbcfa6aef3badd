#pragma once

// What one rank has of layers with a state: some heads (channels, where each is a head), with the
// channels of the convolution that they read. A state stays with its heads, so no rank needs
// another's. B and C of a scan's group are on all ranks that have heads of the group.
// Values, any thread. REQUIRES: CheckRecurrentRanks.

#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/models/rank_share.h"
#include "engine_core/weights/recurrent_config.h"

namespace tandem {

struct RecurrentShare {
  RecurrentConfig own;          // the sizes of a model with these heads alone
  std::vector<Slice> heads;     // of the value heads, for each turn (RecurrentConfig::num_turns)
  std::vector<Slice> values;    // their numbers; kShortConv: the channels
  std::vector<Slice> channels;  // of the convolution's, in their order
  bool norms_across = false;    // kScan: a group of the norm is on several ranks
};

RecurrentShare RecurrentShareOf(const RecurrentConfig& config, RankShare share);

// flag: what the message begins with.  INVALID_ARGUMENT names the size that cannot be split.
Status CheckRecurrentRanks(const RecurrentConfig& config, int num_ranks, const std::string& flag);

}  // namespace tandem
