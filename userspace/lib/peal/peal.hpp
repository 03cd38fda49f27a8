// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * All of libpeal.
 */
#pragma once
#include "completion.hpp"
#include "connection.hpp"
#include "deadline.hpp"
#include "device.hpp"
#include "endpoint.hpp"
#include "group.hpp"
#include "memory.hpp"
#include "offer.hpp"
#include "result.hpp"
#include "shared_receives.hpp"
#include "window.hpp"
#include "xrc.hpp"
