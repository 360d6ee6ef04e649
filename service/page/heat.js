// The heat map: people per cell as colours, the same ones that the service draws.

const ANCHORS = [[13, 22, 89], [76, 30, 141], [143, 43, 148], [200, 73, 120], [237, 117, 80], [251, 172, 56], [252, 231, 84]];
const FAINT = 110, STRONG = 215; // how far colours hide the picture: with hardly anyone, at the top (of 255)
const SOMEONE = 0.004; // people per cell; below it colours fade out

/** A round number of people per cell at or above the map's largest: the top of the colour scale. */
export function scaleTop(cells) {
  const largest = cells.reduce((most, value) => Math.max(most, value), 0.01);
  const unit = 10 ** Math.floor(Math.log10(largest));
  return [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10].map((step) => step * unit).find((top) => top >= largest * (1 - 1e-6));
}

function colour(share) {
  const place = Math.min(1, Math.max(0, share)) * (ANCHORS.length - 1);
  const lower = Math.min(Math.floor(place), ANCHORS.length - 2);
  return ANCHORS[lower].map((value, channel) => value + (ANCHORS[lower + 1][channel] - value) * (place - lower));
}

/** One pixel a cell; with `veiled` the picture below shines through where nobody is. */
export function heatCanvas(map, top, veiled) {
  const canvas = new OffscreenCanvas(map.columns, map.rows);
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(map.columns, map.rows);
  map.cells.forEach((people, index) => {
    const share = Math.sqrt(Math.min(1, people / top));
    pixels.data.set(colour(share), 4 * index);
    const hides = (FAINT + (STRONG - FAINT) * share) * Math.min(1, people / SOMEONE);
    pixels.data[4 * index + 3] = veiled ? hides : 255;
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** The picture, the heat map, or one over the other, into a context that is `width` wide. */
export function paint(context, width, { picture, answer, heat, view }) {
  const scale = width / answer.width;
  const height = answer.height * scale;
  context.fillStyle = "#0d0b14";
  context.fillRect(0, 0, width, height);
  if (picture && view !== "heat") context.drawImage(picture, 0, 0, width, height);
  if (view === "image") return;
  const source = view === "heat" ? heat.full : heat.veiled;
  const side = answer.map.cell * scale; // the last cells may reach past the picture: the canvas cuts them
  context.imageSmoothingEnabled = true;
  context.save();
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
  context.drawImage(source, 0, 0, answer.map.columns * side, answer.map.rows * side);
  context.restore();
}

export function paintLegend(canvas) {
  const context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x += 1) {
    context.fillStyle = `rgb(${colour(x / (canvas.width - 1)).join(" ")})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
}
