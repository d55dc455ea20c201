// Package chart draws what was measured: horizontal bars in a few panels, as
// SVG, as PNG, and as text for a terminal.
//
// Every bar carries its value, so that small ones beside large ones can still
// be read. The background is white in every form, because the pictures are
// shown on pages of either colour.
package chart
